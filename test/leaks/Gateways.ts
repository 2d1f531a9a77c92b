import { bearer, json, type Request } from "../support/http/HttpProbe.ts"

export const post = (path: string, body: unknown): Request => ({
  method: "POST",
  path,
  headers: [json],
  body: typeof body === "string" ? body : JSON.stringify(body)
})

/** Requests over the socket with a secret wherever a gateway could put one by mistake. */
export const misplaced = (secret: string, account_id: string, route: string): ReadonlyArray<Request> => {
  const inPath = encodeURIComponent(secret)
  const account = `/v1/accounts/${account_id}`
  const asked = { account_id, model: "a/model", targets: [{ provider: "xai" }] }
  const wrong = ["account_id", "workspace_id", "api_key_hash", "user_id", "strategy", "freshness_ms", "targets", secret]
  return [
    post("/v1/routes", { ...asked, user_id: secret }),
    post("/v1/routes", { ...asked, account_id: undefined, api_key: secret }),
    post("/v1/routes", { ...asked, api_key: secret }),
    post("/v1/routes", { ...asked, account_id: undefined, api_key: [secret] }),
    post("/v1/routes", { ...asked, targets: [{ provider: secret, endpoint: secret }] }),
    post("/v1/routes", { model: `${secret}\0`, ...Object.fromEntries(wrong.map((name) => [name, secret])) }),
    post("/v1/routes", `{"account_id":"${secret}`),
    post(`/v1/routes/${inPath}/attempts/1`, { status: 200 }),
    post(`/v1/routes/${route}/attempts/${inPath}`, { status: 200 }),
    post(`/v1/routes/${route}/attempts/9`, { status: 429, retry_after: secret, codes: [secret] }),
    post(`/v1/routes/${route}/attempts/1`, { status: secret, retry_after: [secret], codes: secret, [secret]: secret }),
    { method: "DELETE", path: `/v1/routes/${inPath}` },
    post("/v1/accounts", { name: [secret], [secret]: secret }),
    { path: `/v1/accounts?after=${inPath}&${inPath}=1`, headers: [bearer(secret), ["Cookie", secret]] },
    { path: `/v1/accounts/${inPath}/api-keys` },
    { path: `${account}/api-keys`, headers: [["User-Agent", secret]] },
    post(`${account}/api-keys`, { name: "imported", hash: secret, role: secret }),
    { method: "DELETE", path: `${account}/api-keys/${inPath}` },
    { method: "DELETE", path: `${account}/workspaces/${inPath}` }
  ]
}

/** The keys of the attempts of a route. The last answer is searched as it is: that control finds the key there. */
export const attempts = [
  "the key of a first attempt",
  "the key of a second attempt",
  "the key of an attempt as answered"
]

interface Routed {
  readonly data?: { readonly route?: string; readonly next?: { key?: string } | null }
}

export const routedIn = (body: string) => JSON.parse(body) as Routed

/** An answer of the socket without the one member that a provider's key belongs in. */
export const withoutKey = (body: string): string => {
  const answer = routedIn(body)
  delete answer.data?.next?.key
  return JSON.stringify(answer)
}
