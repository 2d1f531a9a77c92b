import { readFileSync } from "node:fs"
import { AEAD_AES_256_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_P256_HKDF_SHA256 } from "hpke"
import { DateTime, Effect, Layer, Result } from "effect"
import { layer } from "../../src/crypto/LinkKeysLive.ts"
import { AccountId, LinkId, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { AuthenticationFailed, Cipher, type OpenFailure, UnknownKeyId } from "../../src/port/Cipher.ts"
import { LinkKeys } from "../../src/port/Links.ts"
import { plainSealedKey } from "../support/database/plainCredential.ts"
import { unknownId } from "../support/http/Bodies.ts"
import { assert, it } from "../support/it.ts"

interface Vector {
  readonly info: string
  readonly skRm: string
  readonly pkRm: string
  readonly enc: string
  readonly encryptions: ReadonlyArray<{ readonly aad: string; readonly ct: string; readonly pt: string }>
}

const vector = JSON.parse(
  readFileSync(new URL("../vectors/hpke-p256-sha256-aes256gcm.json", import.meta.url), "utf8")
) as Vector

const suite = new CipherSuite(KEM_DHKEM_P256_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_256_GCM)
const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, "hex"))

it("HPKE decrypts the vectors of RFC 9180, but not with other additional data", async () => {
  const key = await suite.DeserializePrivateKey(bytes(vector.skRm), true)
  const opener = await suite.SetupRecipient(key, bytes(vector.enc), { info: bytes(vector.info) })
  assert.isAtLeast(vector.encryptions.length, 4)
  for (const { aad, ct, pt } of vector.encryptions) {
    assert.strictEqual(Buffer.from(await opener.Open(bytes(ct), bytes(aad))).toString("hex"), pt)
  }
  const [first] = vector.encryptions
  const again = await suite.SetupRecipient(key, bytes(vector.enc), { info: bytes(vector.info) })
  const refused = await again.Open(bytes(first?.ct ?? ""), bytes("00")).catch((error: unknown) => String(error))
  assert.match(String(refused), /Error/)
})

it.effect("opening a key sent by link says only of an altered link why its private key does not open", function* () {
  const link = {
    link_id: LinkId.make(unknownId),
    account_id: AccountId.make(unknownId),
    workspace_id: WorkspaceId.make(unknownId),
    purpose: "manage" as const,
    provider: null,
    credential_id: null,
    return_url: null,
    created_at: DateTime.makeUnsafe(0),
    expires_at: DateTime.makeUnsafe(1)
  }
  const pair = { public_key: new Uint8Array(), private_key: plainSealedKey() }
  const target = { ...link, provider: "openai" }
  const tagWhen = (failure: OpenFailure) =>
    Effect.flatMap(LinkKeys, ({ open }) =>
      Effect.flip(open(link, pair, { enc: new Uint8Array(), ciphertext: new Uint8Array() }, target))
    ).pipe(
      Effect.map(({ _tag }) => _tag),
      Effect.provide(
        Layer.provide(
          layer,
          Layer.succeed(Cipher, {
            seal: () => Effect.die("not called"),
            read: () => Result.fail(failure),
            verify: () => Result.fail(failure)
          })
        )
      )
    )
  assert.strictEqual(yield* tagWhen(new UnknownKeyId({ kek_id: "gone" })), "NotForThisLink")
  assert.strictEqual(yield* tagWhen(new AuthenticationFailed()), "LinkAltered")
})
