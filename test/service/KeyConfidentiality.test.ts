import { NodeCrypto } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Layer, Redacted, Schema } from "effect"
import { HttpServer } from "effect/http"
import * as CipherAes256Gcm from "../../src/crypto/CipherAes256Gcm.ts"
import * as KeyEncryptionKeyring from "../../src/crypto/KeyEncryptionKeyring.ts"
import { generateKeyring, Keyring, parseKeyring } from "../../src/crypto/Keyring.ts"
import { WrapBudget } from "../../src/crypto/WrapBudget.ts"
import * as Server from "../../src/http/Server.ts"
import { Accounts } from "../../src/service/Accounts.ts"
import { Cipher } from "../../src/service/Cipher.ts"
import { KeyStoreUnavailable } from "../../src/service/CipherErrors.ts"
import { CredentialRepository } from "../../src/service/CredentialRepository.ts"
import { Credentials } from "../../src/service/Credentials.ts"
import { Readiness } from "../../src/service/Readiness.ts"
import { acceptedBody, anyBody, canary, elementOf, json, keyMaterial, oneOf } from "../support/arbitraries.ts"
import * as CipherPlain from "../support/CipherPlain.ts"
import { leakOf } from "../support/leakOf.ts"
import * as MemoryStore from "../support/Memory.ts"
import * as RecordingLive from "../support/Recording.ts"
import { Recording } from "../support/Recording.ts"

type Ports = Cipher | CredentialRepository
const cipher = CipherAes256Gcm.layer.pipe(
  Layer.provide([KeyEncryptionKeyring.layer, Layer.succeed(WrapBudget, { spend: () => Effect.void })]),
  Layer.provide(Layer.sync(Keyring, () => parseKeyring(generateKeyring(new Date(0)))))
)
const honest = Layer.mergeAll(cipher, MemoryStore.credentialRepository)

/** The service over HTTP, all that it logs and traces recorded, on the given cipher and repository. */
const serviceWith = (ports: Layer.Layer<Ports, never, MemoryStore.Memory>) =>
  Server.layer({ host: "127.0.0.1", port: 0 }).pipe(
    Layer.provide([Credentials.layer, Layer.mock(Readiness, { problems: Effect.succeed([]) })]),
    Layer.provideMerge(Accounts.layer),
    Layer.provide([ports, MemoryStore.accountRepository, MemoryStore.apiKeys, MemoryStore.workspaceResolver]),
    Layer.provide([MemoryStore.Memory.layer, NodeCrypto.layerSecureRandom]),
    Layer.provideMerge(RecordingLive.layer),
    Layer.fresh,
    Layer.orDie
  )

/** A secret, and a body that has it in its key, in every form from accepted to not even JSON. */
const exchange = Arbitrary.flatMap(canary, (secret) => {
  const texts = oneOf(
    Arbitrary.Constant(secret),
    elementOf([` ${secret}`, `${secret}\0`, `\ud800${secret}`, `{"api_key":"${secret}"`, `{"api_key":["${secret}"]}`]),
    keyMaterial(Arbitrary.Constant(secret))
  )
  const bodies = oneOf<unknown>(
    acceptedBody(Arbitrary.Constant(secret)),
    acceptedBody(texts),
    anyBody(texts),
    json(texts)
  )
  const withoutHashes = Arbitrary.map(acceptedBody(Arbitrary.Constant(secret)), (body) => ({
    ...body,
    allowed_api_key_hashes: null
  }))
  return Arbitrary.map(
    Arbitrary.all({ body: oneOf<unknown>(bodies, withoutHashes), broken: elementOf([false, false, false, true]) }),
    ({ body, broken }) => ({ secret, body: JSON.stringify(body).slice(0, broken ? -1 : undefined) })
  )
})

/** What of an answer may hold a secret by right: what the caller wrote into other fields than the key. */
const withoutEchoes = (answer: string) =>
  answer.replace(/"(name|allowed_models|allowed_user_ids)":(null|"(\\.|[^"\\])*"|\[("(\\.|[^"\\])*",?)*\])/g, "")

const answers = { "201": 0, "400": 0, "500": 0, other: 0 }

/** Sends a body, reads the credential back if there is one, and looks for secrets in whatever came of it. */
const keepsSecret = Effect.fnUntraced(function* ({ body, secret }: { readonly secret: string; readonly body: string }) {
  const { address } = yield* HttpServer.HttpServer
  const { createAccount } = yield* Accounts
  const { all, logs, spans } = yield* Recording
  const { management_key } = yield* createAccount("a test account")
  const token = Redacted.value(management_key)
  logs.length = 0
  spans.length = 0
  const call = (path: string, init: RequestInit) =>
    Effect.promise(async () => {
      const authorization = `Bearer ${token}`
      const response = await fetch(`${HttpServer.formatAddress(address)}/api/v1/byok${path}`, {
        ...init,
        headers: { authorization, "content-type": "application/json" }
      })
      const headers = JSON.stringify(Array.from(response.headers))
      return { status: response.status, headers, answer: await response.text() }
    })
  const created = yield* call("", { method: "POST", body })
  const said = [created.headers, withoutEchoes(created.answer)]
  if (created.status === 201) {
    const { data } = Schema.decodeUnknownSync(
      Schema.fromJsonString(Schema.Struct({ data: Schema.Struct({ id: Schema.String }) }))
    )(created.answer)
    const read = yield* call(`/${data.id}`, { method: "GET" })
    said.push(read.headers, withoutEchoes(read.answer))
  }
  const status = String(created.status)
  answers[status === "201" || status === "400" || status === "500" ? status : "other"] += 1
  return spans.length > 0 && leakOf([...said, yield* all].join("\n"), [secret, token]) === undefined
})

const check = (ports: Layer.Layer<Ports, never, MemoryStore.Memory>, runs: number) =>
  Effect.provide(Arbitrary.checkEffect(exchange, keepsSecret, { runs, maxShrinks: 0 }), serviceWith(ports))

const cipherThat = (seal: (inner: Cipher["Service"]) => Cipher["Service"]["seal"]) =>
  Layer.effect(
    Cipher,
    Effect.map(Cipher, (inner) => ({ ...inner, seal: seal(inner) }))
  ).pipe(Layer.provideMerge(honest))

const repositoryThat = (
  insert: (inner: CredentialRepository["Service"]) => CredentialRepository["Service"]["insert"]
) =>
  Layer.effect(
    CredentialRepository,
    Effect.map(CredentialRepository, (inner) => ({ ...inner, insert: insert(inner) }))
  ).pipe(Layer.provideMerge(honest))

describe("no 9 characters in a row of a raw key or of a management key are in any answer, log or span (T4, rule 4)", () => {
  it.live("whatever the body is", () =>
    Effect.gen(function* () {
      const checked = yield* check(honest, 150)
      assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
      assert.isAbove(answers["201"], 10)
      assert.isAbove(answers["400"], 10)
      assert.strictEqual(answers.other, 0)
    })
  )

  const failing: ReadonlyArray<readonly [string, Layer.Layer<Ports, never, MemoryStore.Memory>]> = [
    ["the key store fails", cipherThat(() => () => Effect.fail(new KeyStoreUnavailable({ reason: "no key" })))],
    ["the cipher dies", cipherThat(() => () => Effect.die(new Error("no cipher")))],
    ["the database dies", repositoryThat(() => () => Effect.die(new Error("no database")))],
    [
      "the database shows the row that it could not store",
      repositoryThat(() => (account_id, row, sealed) => Effect.die({ message: "row", account_id, row, sealed }))
    ]
  ]
  it.live.each(failing)("when %s", ([, ports]) =>
    Effect.gen(function* () {
      const before = answers["500"]
      const checked = yield* check(ports, 40)
      assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
      assert.isAbove(answers["500"], before)
    })
  )

  const leaking: ReadonlyArray<readonly [string, Layer.Layer<Ports, never, MemoryStore.Memory>]> = [
    [
      "logs the key on the lowest level",
      cipherThat(
        ({ seal }) =>
          (key, context) =>
            Effect.andThen(Effect.logTrace(Redacted.value(key)), seal(key, context))
      )
    ],
    [
      "logs the key as part of an object",
      cipherThat(
        ({ seal }) =>
          (key, context) =>
            Effect.andThen(Effect.logDebug({ body: { key: Redacted.value(key) } }), seal(key, context))
      )
    ],
    [
      "notes the key in its span",
      cipherThat(
        ({ seal }) =>
          (key, context) =>
            Effect.andThen(Effect.annotateCurrentSpan("key", Redacted.value(key)), seal(key, context))
      )
    ],
    [
      "names its span after the end of the key",
      cipherThat(
        ({ seal }) =>
          (key, context) =>
            Effect.withSpan(seal(key, context), `seal ...${Redacted.value(key).slice(-12)}`)
      )
    ],
    [
      "dies of an error that quotes the key",
      cipherThat(() => (key) => Effect.die(new Error(`cannot seal ${Redacted.value(key)}`)))
    ],
    [
      "keeps the key in the clear and answers with it",
      Layer.effect(
        CredentialRepository,
        Effect.map(CredentialRepository, (inner) => ({
          ...inner,
          insert: (account_id, credential, sealed) => {
            const label = Buffer.from(sealed.sealed.subarray(62)).toString("utf8")
            return inner.insert(account_id, { ...credential, label }, sealed)
          }
        }))
      ).pipe(Layer.provideMerge(Layer.mergeAll(CipherPlain.layer, MemoryStore.credentialRepository)))
    ]
  ]
  it.live.each(leaking)("a service is found out that %s", ([, ports]) =>
    Effect.gen(function* () {
      assert.strictEqual((yield* check(ports, 100))._tag, "Falsified")
    })
  )
})
