import { Effect } from "effect"
import { credentialIn } from "./Bodies.ts"
import { bearer, json, type Request, send } from "./HttpProbe.ts"

/** Status and body of an answer under a key, of a service of any version. */
const ask = (url: string, management_key: string, { headers = [], ...request }: Request) =>
  Effect.map(send(url, { ...request, headers: [bearer(management_key), ...headers] }), ({ body, status }) => ({
    status,
    body
  }))

/** Creates a credential over HTTP. */
export const createOver = (url: string, management_key: string, credential: object) => {
  const request = { method: "POST", path: "/api/v1/byok", headers: [json], body: JSON.stringify(credential) }
  return ask(url, management_key, request)
}

/** Reads a credential over HTTP. */
export const getOver = (url: string, management_key: string, id: string) =>
  ask(url, management_key, { path: `/api/v1/byok/${id}` })

/** The id of the credential in an answer. */
export const idIn = (answer: { readonly body: string }) => String(credentialIn(answer)["id"])
