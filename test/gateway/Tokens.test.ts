import { Effect } from "effect"
import { decodeJwt, importSPKI, jwtVerify } from "jose"
import { createdId } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { accessKey, rsaKey, serviceAccount } from "../support/keys/cloudKeys.ts"
import { assert, layerLive } from "../support/it.ts"
import { ask, listening, socketPath } from "./socket.ts"

interface Opened {
  readonly next: Readonly<Record<string, unknown>> | null
}
const model = "a/model"
const openedIn = ({ text }: { readonly text: string }) => (JSON.parse(text) as { readonly data: Opened }).data

/** A socket, and an account with a service account, an access key and a plain key, in this order. */
const scene = Effect.gen(function* () {
  const tenant = yield* TestService.newTenant
  const keys = [
    ["google-vertex", JSON.stringify({ ...serviceAccount, region: "us-east5" })],
    ["amazon-bedrock", JSON.stringify(accessKey)],
    ["openai", "sk-0123456789-0123456789-AbCd"]
  ] as const
  const ids: Array<string> = []
  for (const [provider, key] of keys) ids.push(createdId(yield* tenant.create({ provider, key })))
  const path = yield* socketPath
  const targets = keys.map(([provider]) => ({ provider, endpoint: { shared: false } }))
  const open = (body: object) =>
    ask(path, "POST", "/v1/attempts", { account_id: tenant.account_id, model, targets, ...body })
  const report = ({ next }: Opened, asked: object) =>
    Effect.map(open({ ...asked, after: { attempt: next?.["attempt"], status: 500 } }), openedIn)
  return { ids, keys, open, path, report }
})

layerLive(TestService.layer)("an attempt (D58)", (it) => {
  it.effect("if asked for tokens, returns them with expiry and cloud details, and plain keys as stored", function* () {
    const { ids, keys, open, path, report } = yield* scene
    yield* listening(path)
    const before = Date.now()
    const vertex = openedIn(yield* open({ keys: "tokens" }))
    const { key, key_expires_at, ...rest } = vertex.next ?? {}
    assert.deepStrictEqual(rest, {
      ...{
        attempt: vertex.next?.["attempt"],
        step: "own",
        provider: "google-vertex",
        credential_id: ids[0],
        label: "0f1...4567",
        region: null
      },
      ...{ key_kind: "token", cloud: { project_id: "fake-project", region: "us-east5" } }
    })
    const { payload } = yield* Effect.promise(async () =>
      jwtVerify(String(key), await importSPKI(rsaKey.publicKey, "RS256"))
    )
    assert.strictEqual(payload.iss, serviceAccount.client_email)
    assert.strictEqual(key_expires_at, new Date(Number(payload.exp) * 1000).toISOString())
    assert.isAtLeast(Date.parse(String(key_expires_at)), before - 1000 + 3_600_000)

    const bedrock = yield* report(vertex, { keys: "tokens" })
    assert.match(String(bedrock.next?.["key"]), /^bedrock-api-key-/)
    assert.deepInclude(bedrock.next, { key_kind: "token", label: "AK...22", cloud: { region: "us-east-1" } })
    const plain = yield* report(bedrock, { keys: "tokens" })
    const stored = { key_kind: "stored", key_expires_at: null, cloud: null }
    assert.deepInclude(plain.next, { provider: "openai", key: keys[2][1], ...stored })

    const again = openedIn(yield* open({ keys: "tokens" }))
    assert.strictEqual(again.next?.["key"], key, "the kept one")
  })

  it.effect("returns keys as stored by default (control), and 400 for an unknown form of keys", function* () {
    const { keys, open, path } = yield* scene
    yield* listening(path)
    for (const body of [{}, { keys: "as_stored" }]) {
      const { next } = openedIn(yield* open(body))
      assert.strictEqual(next?.["key"], keys[0][1])
      for (const name of ["key_kind", "key_expires_at", "cloud"]) assert.notProperty(next, name)
    }
    const { status, text } = yield* open({ keys: "token" })
    assert.strictEqual(status, 400)
    assert.include(text, '{"path":["keys"],"message":"must be as_stored or tokens"}')
  })
})

layerLive(TestService.layerWith({ settings: (given) => ({ ...given, tokensOnly: true }) }))(
  "asking for an attempt with TOKENS_ONLY (D58)",
  (it) => {
    it.effect("returns tokens by default, and 400 if keys as stored are requested", function* () {
      const { open, path } = yield* scene
      yield* listening(path)
      const { next } = openedIn(yield* open({}))
      assert.strictEqual(decodeJwt(String(next?.["key"])).iss, serviceAccount.client_email)
      assert.strictEqual(next?.["key_kind"], "token")
      const { status, text } = yield* open({ keys: "as_stored" })
      assert.strictEqual(status, 400)
      assert.include(text, '{"path":["keys"],"message":"must be tokens: TOKENS_ONLY lets no other form out"}')
      assert.notInclude(text, serviceAccount.private_key_id)
    })
  }
)
