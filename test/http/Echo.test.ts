import { Arbitrary, Context, Effect, Redacted } from "effect"
import { InvalidParams } from "../../src/domain/Errors.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { assert, layerLive } from "../support/it.ts"
import { acceptedBody, anyBody, elementOf, integer, oneOf } from "../support/memory/arbitraries.ts"
import { addHeader, bearer, type Header, json, send } from "../support/http/HttpProbe.ts"
import { credentialIn, minimal } from "../support/http/Bodies.ts"
import { leakOf } from "../support/keys/leakSearch.ts"
import { type Answer, answerText } from "../support/http/RawConnection.ts"
import { Recording } from "../support/process/Recording.ts"
import { envelope, type Issue, refusals } from "../support/http/Refusal.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"

/** The canary in invalid tokens and in bodies. */
const secret = "c0ffee5a1ad7Qm2Zx9KpWv4Rt8"
/** The canary everywhere else. */
const word = "deadbee7Hs3Jn6Yb1Lf5Gc0Ud"

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "SEARCH", "brew"]

const paths = [
  "/api/v1/byok",
  "/api/v1/byok",
  "/api/v1/byok",
  `/api/v1/byok?${word}=${word}`,
  `/api/v1/byok/${word}`,
  `/api/v1/byok/%${word}`,
  `/api/v1/byok/${word}/${word}`,
  `/${word}`,
  `/health/live?${word}`,
  `/health/ready#${word}`,
  `http://${word}.test/api/v1/byok`,
  `http://${word}@${word}.test/api/v1/byok/${word}`,
  `${word}.test:443`,
  "*"
]

const headers: ReadonlyArray<Header> = [
  ["Host", `${word}.test`],
  ["X-Request-Id", `not an id ${word}`],
  ["Idempotency-Key", secret],
  ["Content-Type", `application/${word}`],
  ["Content-Type", `application/json; charset=${word}`],
  ["Content-Encoding", word],
  ["Transfer-Encoding", word],
  ["Expect", word],
  ["Upgrade", word],
  ["Connection", `Upgrade, ${word}`],
  ["Cookie", `${word}=${word}`],
  ["Origin", `https://${word}.test`],
  ["Referer", `https://${word}.test/${word}`],
  ["User-Agent", word],
  ["Accept", word],
  ["Accept-Language", word],
  ["Range", word],
  ["If-None-Match", `"${word}"`],
  ["X-Forwarded-For", word],
  ["X-Forwarded-Host", word],
  ["X-HTTP-Method-Override", word],
  ["traceparent", `00-${word}`],
  ["b3", word],
  [`X-${word}`, word],
  ["X-Long", word.repeat(500)]
]

/** The header or headers, made of the valid token. */
const authorizations: ReadonlyArray<(token: string) => ReadonlyArray<Header>> = [
  (token) => [bearer(token)],
  (token) => [bearer(token)],
  (token) => [bearer(token)],
  () => [bearer(secret)],
  () => [["Authorization", `Basic ${secret}`]],
  (token) => [bearer(token), bearer(secret)],
  () => []
]

const accepted = Arbitrary.map(acceptedBody(Arbitrary.Constant(secret)), ({ allowed_api_key_hashes: _, ...body }) =>
  JSON.stringify(body)
)
const wrong = Arbitrary.map(anyBody(Arbitrary.Constant(secret)), (body) => JSON.stringify(body))
const spoilt = Arbitrary.map(Arbitrary.all([oneOf(accepted, wrong), integer(0, 300)]), ([text, at]) =>
  text.slice(0, at)
)
const notUtf8 = Arbitrary.map(wrong, (text) => Buffer.concat([Buffer.from(text), Buffer.from([0xff])]))
const bodies = oneOf<string | Uint8Array | undefined>(
  accepted,
  accepted,
  wrong,
  spoilt,
  notUtf8,
  elementOf([undefined, secret])
)

const requests = Arbitrary.all({
  method: oneOf(elementOf(methods), Arbitrary.Constant("POST"), Arbitrary.Constant("GET")),
  path: elementOf(paths),
  authorization: elementOf(authorizations),
  type: elementOf<ReadonlyArray<Header>>([[json], [json], []]),
  more: Arbitrary.array(elementOf(headers), { maxLength: 2 }),
  body: bodies
})

type Sent = typeof requests extends Arbitrary.Arbitrary<infer A> ? A : never

/** The form of our own sentences, unlike messages of libraries about values. */
const sentence =
  /^(is required|must (be|have|match|not (be empty|contain|have)) |cannot be combined with |is not an? (API key|workspace) of this account|only offset, )/

const isOurs = ({ message, path }: Issue) =>
  sentence.test(message) && path.every((part) => typeof part === "number" || /^[a-z_-]+$/.test(part))

const isPage = (body: string) => {
  const { data, total_count } = JSON.parse(body) as { data?: ReadonlyArray<object>; total_count?: number }
  return data?.every((one) => Object.keys(one).length === 16) === true && Number(total_count) >= data.length
}

/** Whether a body is one that the specification or the decisions name, word for word. */
const isSpecified = ({ body, status }: Answer): boolean => {
  if (status === 200) return ['{"status":"live"}', '{"status":"ready"}'].includes(body) || isPage(body)
  if (status === 201) return Object.keys(credentialIn({ body, status, headers: {} })).length === 16
  const { error } = JSON.parse(body) as { error: { code: number; metadata?: { issues: ReadonlyArray<Issue> } } }
  if (error.code !== status) return false
  if (status === 400)
    return body === envelope("InvalidParams", error.metadata) && error.metadata?.issues.every(isOurs) === true
  if (status === 401 && error.metadata !== undefined)
    return (
      body === envelope("MissingKey", error.metadata) &&
      error.metadata.issues.every(({ message }) =>
        /^must be (sent once|Bearer and a management key), but /.test(message)
      )
    )
  return (Object.keys(refusals) as ReadonlyArray<keyof typeof refusals>).some((refusal) => body === envelope(refusal))
}

/** The faults of an answer: it must be as specified and repeat nothing of the request. */
const faultsOf = (answer: Answer, method: string | undefined, words: ReadonlyArray<string>): ReadonlyArray<string> => {
  const fine = method === "HEAD" ? answer.body === "" : isSpecified(answer)
  const id = answer.headers["x-request-id"] ?? ""
  return [
    ...(fine ? [] : [`is not specified: ${answer.status} ${answer.body}`]),
    ...(leakOf(answerText(answer), words) === undefined ? [] : ["repeats the request"]),
    ...(answer.headers["cache-control"] === "no-store" ? [] : ["may be stored"]),
    ...(/^[A-Za-z0-9._-]{1,128}$/.test(id) ? [] : ["has no request id"])
  ]
}

layerLive(TestService.recordedWith({}))("any request", (it) => {
  const seen = new Set<number>()

  const examine = Effect.fnUntraced(function* ({ authorization, more, type, ...rest }: Sent) {
    const { url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const { all, logs, spans } = yield* Recording
    logs.length = 0
    spans.length = 0
    const headers = [...authorization(management_key), ...type, ...more]
    const answer = yield* Effect.timeout(send(url, { ...rest, headers }), "20 seconds")
    seen.add(answer.status)
    assert.deepStrictEqual(faultsOf(answer, rest.method, [secret, word, management_key]), [])
    assert.isUndefined(leakOf(yield* all, [secret, management_key]), "a secret is logged or traced")
  })

  it.effect.prop(
    "answers any request as specified and repeats none of it; logs and traces hold no secret (section 7, D7, D11, T4)",
    [requests],
    ([request]) => examine(request),
    { arbitrary: { runs: 500 } }
  )

  it.effect("the random requests get at least the answers 200, 201, 400, 401, 404 and 405 (control)", function* () {
    yield* examine({
      method: "POST",
      path: "/api/v1/byok",
      authorization: (key) => [bearer(key)],
      type: [json],
      more: [],
      body: JSON.stringify({ provider: "cohere", key: secret })
    })
    assert.includeMembers(Array.from(seen), [200, 201, 400, 401, 404, 405])
  })
})

/** A build that repeats the key where its caller asks it to, and in logs and traces. */
const parrot = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const credentials = Context.get(parts, Credentials)
  const repeat = (name: string | null, key: string) => {
    switch (name) {
      case "in the body":
        return Effect.fail(InvalidParams.of({ path: ["key"], message: `must not be ${key}` }))
      case "in a header":
        return addHeader("x-debug", key)
      case "in the log":
        return Effect.logTrace(key)
      case "in a span":
        return Effect.annotateCurrentSpan("key", key)
      default:
        return Effect.void
    }
  }
  return Context.add(parts, Credentials, {
    ...credentials,
    create: (input, idempotency_key) =>
      Effect.andThen(repeat(input.name, Redacted.value(input.key)), credentials.create(input, idempotency_key))
  })
})

layerLive(TestService.recordedWith({ parts: parrot }))("control of the search for repeated keys", (it) => {
  const faults = Effect.fnUntraced(function* (name: string) {
    const { url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const body = JSON.stringify({ ...minimal, key: secret, name })
    const request = { method: "POST", path: "/api/v1/byok", headers: [bearer(management_key), json], body }
    return faultsOf(yield* send(url, request), "POST", [secret])
  })

  it.effect.each(["in the body", "in a header"])("finds a key repeated %s of the answer (control)", (place) =>
    Effect.map(faults(place), (found) => {
      assert.include(found, "repeats the request")
    })
  )

  it.effect.each([
    ["finds", "in the log", true],
    ["finds", "in a span", true],
    ["does not find", "nowhere", false]
  ] as const)("%s the key in logs and traces if a build repeats it %s (control)", function* ([, name, leaks]) {
    const { all, logs, spans } = yield* Recording
    logs.length = 0
    spans.length = 0
    assert.deepStrictEqual(yield* faults(name), [])
    assert.strictEqual(leakOf(yield* all, [secret]), leaks ? secret : undefined)
  })
})
