import { generateKeyPairSync, sign } from "node:crypto"
import { isIP } from "node:net"
import { identifier, pem, sequence, tagged } from "./der.ts"

const bits = (bytes: Uint8Array) => tagged(0x03, Buffer.of(0), bytes)
const time = (text: string) => tagged(0x18, Buffer.from(text))

const commonName = identifier(0x55, 0x04, 0x03)
const alternativeNames = identifier(0x55, 0x1d, 0x11)
const ecdsaWithSha256 = sequence(identifier(0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02))

const groups = (text: string) => (text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16)))

const bytesOf = (address: string) => {
  if (isIP(address) === 4) return Buffer.from(address.split(".").map(Number))
  const [head = [], tail = []] = address.split("::").map(groups)
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => 0)
  return Buffer.from([...head, ...zeros, ...tail].flatMap((group) => [group >> 8, group & 255]))
}

/** A name or an IP address, as a certificate lists it. */
const listed = (host: string) => (isIP(host) === 0 ? tagged(0x82, Buffer.from(host)) : tagged(0x87, bytesOf(host)))

/** A new private key, and a certificate for one host that vouches for itself, both in PEM. */
export const selfSignedCertificate = (host: string, until = "99991231235959Z") => {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" })
  const name = sequence(tagged(0x31, sequence(commonName, tagged(0x0c, Buffer.from(host)))))
  const names = sequence(alternativeNames, tagged(0x04, sequence(listed(host))))
  const content = sequence(
    tagged(0xa0, tagged(0x02, Buffer.of(2))),
    tagged(0x02, Buffer.of(1)),
    ecdsaWithSha256,
    name,
    sequence(time("20200101000000Z"), time(until)),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    tagged(0xa3, sequence(names))
  )
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    certificate: pem("CERTIFICATE", sequence(content, ecdsaWithSha256, bits(sign("sha256", content, privateKey))))
  }
}
