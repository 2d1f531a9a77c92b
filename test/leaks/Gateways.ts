import { bearer, json, type Request } from "../support/http/HttpProbe.ts"

export const post = (path: string, body: unknown): Request => ({
  method: "POST",
  path,
  headers: [json],
  body: typeof body === "string" ? body : JSON.stringify(body)
})

/** Requests over the socket with a secret wherever a gateway could put one by mistake. */
export const misplaced = (secret: string, account_id: string, attempt: string): ReadonlyArray<Request> => {
  const inPath = encodeURIComponent(secret)
  const account = `/v1/accounts/${account_id}`
  const asked = { account_id, model: "a/model", targets: [{ provider: "xai" }] }
  const wrong = ["account_id", "workspace_id", "api_key_hash", "user_id", "strategy", "freshness_ms", "targets", secret]
  return [
    post("/v1/attempts", { ...asked, user_id: secret }),
    post("/v1/attempts", { ...asked, account_id: undefined, api_key: secret }),
    post("/v1/attempts", { ...asked, api_key: secret }),
    post("/v1/attempts", { ...asked, account_id: undefined, api_key: [secret] }),
    post("/v1/attempts", { ...asked, targets: [{ provider: secret, endpoint: secret }] }),
    post("/v1/attempts", { model: `${secret}\0`, ...Object.fromEntries(wrong.map((name) => [name, secret])) }),
    post("/v1/attempts", `{"account_id":"${secret}`),
    post("/v1/attempts", { ...asked, after: { attempt: secret, status: 200 } }),
    post("/v1/attempts", { ...asked, after: { attempt: `${attempt}${inPath}`, status: 200 }, request_id: secret }),
    post("/v1/attempts", { ...asked, after: { attempt, status: 404, retry_after: secret, body: secret } }),
    post("/v1/attempts", { ...asked, after: { attempt: [secret], status: secret, body: [secret], [secret]: secret } }),
    post("/v1/reports", {
      reports: [{ attempt: secret, status: 200 }, { attempt, status: 404, body: secret }, secret]
    }),
    post("/v1/reports", { reports: secret, [secret]: secret }),
    post("/v1/accounts", { name: [secret], [secret]: secret }),
    { path: `/v1/accounts?after=${inPath}&${inPath}=1`, headers: [bearer(secret), ["Cookie", secret]] },
    { path: `/v1/accounts/${inPath}/api-keys` },
    { path: `${account}/api-keys`, headers: [["User-Agent", secret]] },
    post(`${account}/api-keys`, { name: "imported", hash: secret, role: secret }),
    { method: "DELETE", path: `${account}/api-keys/${inPath}` },
    { method: "DELETE", path: `${account}/workspaces/${inPath}` }
  ]
}

/** The keys of the attempts of a request. The last answer is searched as it is: that control finds the key there. */
export const attempts = [
  "the key of a first attempt",
  "the key of a second attempt",
  "the key of an attempt as answered"
]

interface Routed {
  readonly data?: { readonly next?: { readonly attempt?: string; key?: string } | null }
}

export const routedIn = (body: string) => JSON.parse(body) as Routed

/** An answer of the socket without the one member that a provider's key belongs in. */
export const withoutKey = (body: string): string => {
  const answer = routedIn(body)
  delete answer.data?.next?.key
  return JSON.stringify(answer)
}
