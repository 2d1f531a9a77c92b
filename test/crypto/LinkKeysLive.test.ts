import { readFileSync } from "node:fs"
import { AEAD_AES_256_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_P256_HKDF_SHA256 } from "hpke"
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

it("HPKE opens the vectors of RFC 9180, but not with other additional data", async () => {
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
