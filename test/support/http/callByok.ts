import { Effect } from "effect"

export interface Answer {
  readonly status: number
  readonly body: string
}

const answerOf = (request: () => Promise<Response>) =>
  Effect.promise(async (): Promise<Answer> => {
    const response = await request()
    return { status: response.status, body: await response.text() }
  })

/** Creates a credential over HTTP with `fetch`, as a client without any of our code does. */
export const createOver = (url: string, management_key: string, credential: object, idempotency_key?: string) =>
  answerOf(() =>
    fetch(`${url}/api/v1/byok`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${management_key}`,
        "content-type": "application/json",
        ...(idempotency_key === undefined ? {} : { "idempotency-key": idempotency_key })
      },
      body: JSON.stringify(credential)
    })
  )

/** Reads a credential over HTTP. */
export const getOver = (url: string, management_key: string, id: string) =>
  answerOf(() => fetch(`${url}/api/v1/byok/${id}`, { headers: { authorization: `Bearer ${management_key}` } }))

/** The id of the credential in an answer. */
export const idIn = ({ body }: Answer): string => {
  const parsed: unknown = JSON.parse(body)
  const data: unknown = Reflect.get(Object(parsed), "data")
  return String(Reflect.get(Object(data), "id"))
}
