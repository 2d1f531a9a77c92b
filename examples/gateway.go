// A gateway in Go that tries a customer's own keys, with the standard library: go run gateway.go SOCKET ACCOUNT UPSTREAM
package main
import ("bufio"; "bytes"; "context"; "encoding/json"; "fmt"; "io"; "log"; "net"; "net/http"; "os"; "strings"; "time")
type object = map[string]any
var dial = func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", os.Args[1]) }
var byok, upstream = http.Client{Transport: &http.Transport{DialContext: dial}}, http.Client{Timeout: 10 * time.Minute}
func ask(route string, body object) object {
	text, _ := json.Marshal(body); var answer struct { Data object; Error json.RawMessage }
	response, err := byok.Post("http://byok"+route, "application/json", bytes.NewReader(text)); if err != nil { log.Fatal("byok does not answer: ", err) }
	if json.NewDecoder(response.Body).Decode(&answer); answer.Data == nil { log.Fatalf("byok refused: %s", answer.Error) }
	return answer.Data
}
func main() {
	if len(os.Args) != 4 || !strings.HasPrefix(os.Args[3], "http") { log.Fatal("usage: go run gateway.go SOCKET ACCOUNT URL") }
	targets := []object{{"provider": "openai", "endpoint": object{"shared": false}}}
	asked := object{"account_id": os.Args[2], "model": "openai/gpt-4o", "targets": targets, "keys": "tokens"}
	answer, seen := ask("/v1/attempts", asked), object{}
	for answer["next"] != nil {
		attempt, text := answer["next"].(object), []byte{}
		after := object{"attempt": attempt["attempt"], "status": nil}; asked["after"] = after
		request, _ := http.NewRequest("POST", os.Args[3], strings.NewReader("{}")); request.Header.Set("Authorization", "Bearer "+attempt["key"].(string))
		response, err := upstream.Do(request)
		if err == nil {
			text = make([]byte, 8192); n, _ := response.Body.Read(text); text = text[:n] // The first event: a stream may fail there.
			if response.StatusCode >= 400 { rest, _ := io.ReadAll(response.Body); text = append(text, rest...) }
			after["status"], after["retry_after"] = response.StatusCode, response.Header.Get("Retry-After")
			after["body"] = fmt.Sprintf("%.8192s", text)
		}
		answer = ask("/v1/attempts", asked)
		seen[attempt["credential_id"].(string)] = answer["outcome"]; fmt.Fprintln(os.Stderr, attempt["label"], answer["outcome"])
		unserved := answer["outcome"] == "not_served" && answer["next"] == nil
		if answer["outcome"] != "succeeded" && answer["outcome"] != "request_refused" && !unserved { continue }
		lines := bufio.NewScanner(io.MultiReader(bytes.NewReader(text), response.Body))
		// Upstreams repeat keys; a line break never cuts one in two.
		for lines.Buffer(nil, 1<<30); lines.Scan(); { fmt.Println(strings.ReplaceAll(lines.Text(), attempt["key"].(string), "<key>")) }
		if answer["outcome"] == "succeeded" { os.Exit(0) }; os.Exit(1) }
	for _, provider := range answer["providers"].([]any) { for _, one := range provider.(object)["credentials"].([]any) {
		if id := one.(object)["credential_id"].(string); seen[id] == nil { seen[id] = one.(object)["exclusions"] } } }
	reasons, _ := json.Marshal(seen); log.Fatalf("no key could serve the request: %s", reasons)
}
