import { randomBytes } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { InvalidParams } from "../../src/domain/Errors.ts"
import { Cipher } from "../../src/service/Cipher.ts"
import { KeyStoreUnavailable } from "../../src/service/CipherErrors.ts"
import { Credentials } from "../../src/service/Credentials.ts"
import { addHeader } from "../support/addHeader.ts"
import { answerText } from "../support/answerText.ts"
import { minimal } from "../support/Bodies.ts"
import { bearer, create, get, type Header, json, send } from "../support/HttpProbe.ts"
import { leakOf } from "../support/leakOf.ts"
import * as RecordingLive from "../support/Recording.ts"
import { Recording } from "../support/Recording.ts"
import * as TestServiceLive from "../support/TestService.ts"
import { type Parts, TestService } from "../support/TestService.ts"

const recorded = (changes: TestServiceLive.Changes) =>
  Layer.provideMerge(TestServiceLive.layerWith(changes), RecordingLive.layer)

const canary = () => `canary${randomBytes(24).toString("base64").replaceAll(/\W/g, "x")}`

const inMaterial = (secret: string, region: unknown = "us") => JSON.stringify({ api_key: secret, region })
const latin1 = (text: string) => Buffer.from(text, "latin1")

/** Bodies with a secret where customers put their keys, in the right form and in many wrong ones. */
const bodies: ReadonlyArray<readonly [name: string, body: (secret: string) => unknown]> = [
  ["a key", (secret) => ({ provider: "xai", key: secret })],
  ["key material", (secret) => ({ provider: "openai", key: inMaterial(secret) })],
  [
    "key material of another region",
    (secret) => ({ provider: "openai", key: inMaterial(secret), declared_region: "europe" })
  ],
  ["key material of an unknown region", (secret) => ({ provider: "openai", key: inMaterial(secret, secret) })],
  ["key material that is cut off", (secret) => ({ provider: "fireworks", key: inMaterial(secret).slice(0, -2) })],
  ["key material as an object", (secret) => ({ provider: "fireworks", key: { api_key: secret } })],
  ["a key in a list", (secret) => ({ provider: "xai", key: [secret] })],
  ["a key with U+0000", (secret) => ({ provider: "xai", key: `${secret}\0${secret}` })],
  ["a key with half of a surrogate pair", (secret) => ({ provider: "xai", key: `${secret}\ud800` })],
  ["a key and flags that conflict", (secret) => ({ ...minimal, key: secret, is_fallback: true, is_required: true })],
  ["a key for nobody", (secret) => ({ provider: "nobody", key: secret })],
  ["a key as the provider", (secret) => ({ provider: secret, key: secret })],
  [
    "a key in every other field",
    (secret) => ({
      ...minimal,
      key: secret,
      workspace_id: secret,
      allowed_api_key_hashes: [secret],
      declared_region: secret,
      declared_zdr: secret,
      disabled: secret,
      allowed_models: secret
    })
  ],
  ["a key as the name of a member", (secret) => ({ ...minimal, key: 5, [secret]: secret })],
  ["a key in unknown members", (secret) => ({ ...minimal, api_key: secret, secret: { key: secret } })],
  [
    "a key in someone's workspace",
    (secret) => ({ ...minimal, key: secret, workspace_id: "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11" })
  ],
  ["a key and nothing else", (secret) => secret],
  ["JSON that ends in the key", (secret) => `{"provider":"xai","key":"${secret}`],
  ["JSON that goes wrong after the key", (secret) => `{"provider":"xai","key":"${secret}",}`],
  ["JSON that goes wrong before the key", (secret) => `{'provider':'xai','key':'${secret}'}`],
  ["bytes that are not UTF-8 beside the key", (secret) => latin1(`{"provider":"xai","key":"\xff${secret}"}`)],
  ["a body that is too large", (secret) => ({ provider: "xai", key: secret.repeat(10_000) })]
]

/** Heads with a secret where customers put their tokens. */
const heads: ReadonlyArray<readonly [name: string, headers: (secret: string) => ReadonlyArray<Header>]> = [
  ["an unknown token", (secret) => [bearer(secret)]],
  ["another scheme", (secret) => [["Authorization", `Basic ${secret}`]]],
  ["no scheme", (secret) => [["Authorization", secret]]],
  ["two tokens", (secret) => [bearer(secret), bearer(secret)]],
  ["a token that is too long", (secret) => [bearer(secret.repeat(600))]],
  ["a token with a line break", (secret) => [["Authorization", `Bearer ${secret}\r\n ${secret}`]]],
  ["a token in a cookie", (secret) => [["Cookie", `token=${secret}`]]],
  ["a token in a header of another name", (secret) => [["X-Api-Key", secret]]]
]

/** Sends every request there is, each with a secret of its own, and says which of them come to light. */
const leaks = Effect.gen(function* () {
  const { tenant, url } = yield* TestService
  const { all, logs, spans } = yield* Recording
  const { management_key } = yield* tenant
  logs.length = 0
  spans.length = 0
  const sent: Array<readonly [name: string, secret: string, answer: string]> = []
  for (const [name, body] of bodies) {
    const secret = canary()
    sent.push([name, secret, answerText(yield* create(url, management_key, body(secret)))])
  }
  for (const [name, headers] of heads) {
    const secret = canary()
    for (const request of [{ path: "/api/v1/byok/nonsense" }, { method: "POST", path: "/api/v1/byok", body: "{}" }]) {
      const answer = yield* send(url, { ...request, headers: [json, ...headers(secret)] })
      sent.push([name, secret, answerText(answer)])
    }
  }
  const recorded = yield* all
  return sent.flatMap(([name, secret, answer]) =>
    (leakOf(recorded, [secret]) ?? leakOf(answer, [secret, management_key]) ?? leakOf(recorded, [management_key]))
      ? [name]
      : []
  )
})

/** A state of the database in which statements fail, and how to leave it. */
const failures = [
  {
    state: "no table of keys",
    enter: "ALTER TABLE api_keys RENAME TO gone",
    leave: "ALTER TABLE gone RENAME TO api_keys"
  },
  {
    state: "no table of credentials",
    enter: "ALTER TABLE credentials RENAME TO gone",
    leave: "ALTER TABLE gone RENAME TO credentials"
  },
  {
    state: "a row that is refused, with a message that quotes it",
    enter: "ALTER TABLE credentials ADD CONSTRAINT refused CHECK (length(label) < 0) NOT VALID",
    leave: "ALTER TABLE credentials DROP CONSTRAINT refused"
  },
  {
    state: "a column that takes no text",
    enter:
      "ALTER TABLE credentials RENAME COLUMN label TO label_gone; ALTER TABLE credentials ADD COLUMN label integer",
    leave: "ALTER TABLE credentials DROP COLUMN label; ALTER TABLE credentials RENAME COLUMN label_gone TO label"
  }
]

layer(recorded({}), { excludeTestServices: true })("no part of a provider key or token", (it) => {
  it.effect("is in any answer, log entry or span (section 4.1 rule 4, T4)", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* leaks, [])
      const { spans } = yield* Recording
      assert.isAbove(spans.length, bodies.length)
    })
  )

  it.effect.each(failures)("while the database fails: $state (D11, T4)", ({ enter, leave }) =>
    Effect.gen(function* () {
      const { rowCount, sql } = yield* TestService
      const run = (statements: string) =>
        Effect.orDie(Effect.forEach(statements.split(";"), (statement) => sql.unsafe(statement)))
      const before = yield* rowCount
      assert.deepStrictEqual(
        yield* Effect.acquireUseRelease(
          run(enter),
          () => leaks,
          () => run(leave)
        ),
        []
      )
      assert.isNotEmpty((yield* Recording).logs)
      assert.strictEqual(yield* rowCount, before)
    })
  )
})

const keyStoreDown = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const credentials = yield* Effect.provideService(Credentials.make, Cipher, {
    ...Context.get(parts, Cipher),
    seal: () => Effect.fail(new KeyStoreUnavailable({ reason: "it is down" }))
  })
  return Context.add(parts, Credentials, credentials)
})

layer(recorded({ parts: keyStoreDown }), { excludeTestServices: true })("no part of a provider key or token", (it) => {
  it.effect("while the key store fails (D11, T4)", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* leaks, [])
    })
  )
})

/** What careless people plant. */
const planted: Readonly<Record<string, (key: string) => Effect.Effect<void, InvalidParams>>> = {
  "an entry of the log": (key) => Effect.logTrace("creating", { provider: "xai", key }),
  "nine characters in the log": (key) => Effect.logInfo(key.slice(7, 16)),
  "base64 in the log": (key) => Effect.logInfo(Buffer.from(`key=${key}`).toString("base64")),
  "the message of a defect": (key) => Effect.die(new Error(`cannot store ${key}`)),
  "an attribute of the span": (key) => Effect.annotateCurrentSpan("key", key),
  "the name of a span": (key) => Effect.withSpan(Effect.void, key),
  "the message of an issue": (key) => Effect.fail(InvalidParams.of({ path: ["key"], message: `not ${key}` })),
  "a header of the answer": (key) => addHeader("x-debug", key.toLowerCase())
}

/** A build that leaks what its caller asks for by name. */
const leaky = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const credentials = Context.get(parts, Credentials)
  return Context.add(parts, Credentials, {
    ...credentials,
    create: (input) =>
      Effect.andThen(planted[input.name ?? ""]?.(Redacted.value(input.key)) ?? Effect.void, credentials.create(input))
  })
})

layer(recorded({ parts: leaky }), { excludeTestServices: true })("positive control: a leak is seen (T4)", (it) => {
  it.effect.each(Object.keys(planted))("in %s", (name) =>
    Effect.gen(function* () {
      const { tenant, url } = yield* TestService
      const { management_key } = yield* tenant
      const { all } = yield* Recording
      const [secret, hidden] = [canary(), canary()]
      const answer = yield* create(url, management_key, { provider: "xai", key: secret, name })
      const innocent = yield* create(url, management_key, { provider: "xai", key: hidden })
      const text = answerText(answer) + answerText(innocent) + (yield* all)
      assert.strictEqual(leakOf(text, [secret]), secret)
      assert.isUndefined(leakOf(text, [hidden, management_key]))
      yield* get(url, management_key, "nonsense")
    })
  )
})
