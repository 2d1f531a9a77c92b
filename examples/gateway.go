// A gateway in Go that tries a customer's own keys, with the standard library: go run gateway.go SOCKET ACCOUNT UPSTREAM
package main
import ("bytes"; "context"; "encoding/json"; "fmt"; "io"; "log"; "net"; "net/http"; "os"; "strings"; "time")
type object = map[string]any
var dial = func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", os.Args[1]) }
var byok = http.Client{Transport: &http.Transport{DialContext: dial}}
func ask(route string, body object) object {
	text, _ := json.Marshal(body)
	var answer struct { Data object; Error json.RawMessage }
	response, err := byok.Post("http://byok"+route, "application/json", bytes.NewReader(text))
	if err != nil { log.Fatal("byok does not answer: ", err) }
	if json.NewDecoder(response.Body).Decode(&answer); answer.Data == nil { log.Fatalf("byok refused: %s", answer.Error) }
	return answer.Data
}
func main() {
	if len(os.Args) != 4 || !strings.HasPrefix(os.Args[3], "http") { log.Fatal("usage: go run gateway.go SOCKET ACCOUNT URL") }
	targets := []object{{"provider": "openai", "endpoint": object{"shared": false}}}
	answer := ask("/v1/routes", object{"account_id": os.Args[2], "model": "openai/gpt-4o", "targets": targets})
	for route := answer["route"]; answer["next"] != nil; {
		attempt, report := answer["next"].(object), object{"status": nil}
		request, _ := http.NewRequest("POST", os.Args[3], strings.NewReader("{}"))
		request.Header.Set("Authorization", "Bearer "+attempt["key"].(string))
		response, err := (&http.Client{Timeout: time.Minute}).Do(request)
		if err == nil { report = object{"status": response.StatusCode, "retry_after": response.Header.Get("Retry-After")} }
		answer = ask(fmt.Sprintf("/v1/routes/%v/attempts/%v", route, attempt["attempt"]), report)
		fmt.Fprintln(os.Stderr, attempt["label"], answer["outcome"])
		if err == nil && response.StatusCode == 200 { io.Copy(os.Stdout, response.Body); return }
	}
	log.Fatal("no key could serve the request")
}
