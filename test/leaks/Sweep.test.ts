import { isDeepStrictEqual } from "node:util"
import { leakSearch } from "../support/keys/leakSearch.ts"
import { type Channel, channels } from "./Channel.ts"
import { inputs } from "./Inputs.ts"
import { leasePlants, leaseUses } from "./leases.ts"
import { plants, stored } from "./plants.ts"
import { type Hits, sweep } from "./Sweep.ts"
import { assert, describe, it } from "../support/it.ts"

/** Texts that a channel may repeat: finding them shows that the channel is searched. */
const byRight: Readonly<Record<string, ReadonlyArray<Channel>>> = {
  "the name of a credential": ["bodies", ...stored],
  "the id of a request": ["headers", "standard error", "spans"],
  "the id of a trace": ["spans", "standard error"],
  "the id of a request over the socket": ["headers", "standard error", "spans"],
  "a management key made over the socket": ["bodies"],
  "an API key made over the socket": ["bodies"],
  "the key of an attempt as answered": ["bodies"]
}

/** The planted leaks. */
const planted = { ...plants, ...leasePlants }

const found = (hits: Hits | undefined) => channels.filter((channel) => (hits?.[channel] ?? 0) > 0).sort()

describe("everything the service emits", { timeout: 240_000 }, () => {
  it.live("includes answers with every expected status, and failed commands (D11)", function* () {
    const { exitCodes, statuses } = yield* sweep
    const { nothing = {}, "the service itself": _, "the socket": routed = {}, ...failing } = statuses
    for (const status of [200, 201, 400, 401, 404, 413, 417, 431]) assert.isAbove(nothing[status] ?? 0, 0, `${status}`)
    assert.isUndefined(nothing[500])
    for (const status of [200, 201, 400, 404, 409, 500, 503]) assert.isAbove(routed[status] ?? 0, 0, `socket ${status}`)
    assert.lengthOf(Object.keys(failing), 7)
    for (const [name, seen] of Object.entries(failing)) {
      // Without a connection nothing is sent, so the service answers that the request may be repeated.
      const expected = name === "connections are refused" ? 503 : 500
      assert.isAbove(seen[expected] ?? 0, 0, name)
      assert.isUndefined(seen[201], name)
    }
    assert.isTrue(exitCodes.every((code) => code === 1 || code === 2))
  })

  it.live.each(channels)(
    "holds no 9 consecutive characters of a key, a token or any other secret, in any form, leased or not: %s (section 4.1 rule 4, Q22, T1, T4)",
    function* (channel) {
      const { hits } = yield* sweep
      const secrets = Object.entries(hits).filter(([name]) => !(name in byRight) && !(name in planted))
      const leaked = secrets.filter(([, hits]) => hits[channel] > 0).map(([name]) => name)
      assert.deepStrictEqual(leaked, [])
      assert.includeMembers(
        secrets.map(([name]) => name),
        [
          ...inputs.map(([name]) => name),
          ...Object.keys(leaseUses),
          "the text of leak find --park",
          "the key of a first attempt",
          "the key of a second attempt",
          "a secret that a gateway misplaces",
          "the management key",
          "the key-encryption key",
          "the secret of the webhook",
          "the password of the database"
        ]
      )
    }
  )

  it.live("shows input that may be repeated in exactly the expected channels (control)", function* () {
    const { hits } = yield* sweep
    for (const [name, into] of Object.entries(byRight)) assert.deepStrictEqual(found(hits[name]), into.toSorted(), name)
  })

  it.live.each(Object.entries(planted))("contains the planted leak: %s (control)", function* ([name, { into }]) {
    const { hits } = yield* sweep
    assert.deepStrictEqual(found(hits[name]), into.toSorted())
  })

  it("has a planted leak in every channel (control)", () => {
    const leaked = Object.values(plants).flatMap(({ into }) => into)
    assert.deepStrictEqual(Array.from(new Set(leaked)).sort(), channels.toSorted())
  })

  it.live("includes searches that found the credentials of a leaked key (L15, control)", function* () {
    const { found, rows } = yield* sweep
    assert.lengthOf(found, 2)
    for (const stdout of found) {
      assert.deepStrictEqual(
        rows.map(({ id }) => stdout.includes(`found     ${String(id)}`)),
        [true, true, false]
      )
    }
  })

  it.live("does not show in stored rows which keys are equal (T1)", function* () {
    const { rows } = yield* sweep
    const [one = {}, same = {}, another = {}] = rows
    const equalColumns = (left: object, right: object) =>
      Object.keys(left).filter((name) =>
        isDeepStrictEqual(Reflect.get(left, name) as unknown, Reflect.get(right, name) as unknown)
      )
    assert.deepStrictEqual(equalColumns(one, same), equalColumns(one, another))
    assert.include(equalColumns(one, same), "label")
    assert.include(equalColumns(one, one), "sealed", "control")
    assert.notInclude(equalColumns(one, same), "sealed")
    assert.notInclude(equalColumns(one, same), "wrapped_dek")
  })
})

describe("the search for secrets", () => {
  const secret = "sk-+Qm2Zx/9KpWv=4Rt8"
  const search = leakSearch({ secret, other: "another secret altogether" })
  const bytes = Buffer.from(secret)
  const reversed = Buffer.from(bytes).reverse()
  const base64At = (offset: number, given: Buffer) =>
    Buffer.concat([Buffer.from("?".repeat(offset)), given]).toString("base64")

  it.each<readonly [form: string, text: string]>([
    ["itself", secret],
    ["any 9 characters of it", secret.slice(5, 14)],
    ["capitals", secret.toUpperCase()],
    ["the reverse", reversed.toString()],
    ["hexadecimal", bytes.toString("hex")],
    ["hexadecimal in capitals", bytes.toString("hex").toUpperCase()],
    ["a part of a URL", encodeURIComponent(secret)],
    ["base64 for URLs", bytes.toString("base64url")],
    ...[0, 1, 2].map((offset) => [`base64 at offset ${offset}`, base64At(offset, bytes)] as const),
    ...[0, 1, 2].map((offset) => [`the reverse in base64 at offset ${offset}`, base64At(offset, reversed)] as const)
  ])("finds %s in the middle of text and of bytes", (_name, form) => {
    assert.deepStrictEqual(Object.keys(search(`before${form}after`)), ["secret"])
    assert.deepStrictEqual(Object.keys(search(form)), ["secret"])
    assert.deepStrictEqual(Object.keys(search(Buffer.concat([Buffer.of(0, 255), Buffer.from(form)]))), ["secret"])
  })

  it("ignores 8 characters of a secret, and text that is not part of one", () => {
    for (const text of ["", secret.slice(3, 11), "sk-...4Rt8", "?".repeat(1000)])
      assert.deepStrictEqual(search(text), {})
  })

  it("counts each secret separately", () => {
    assert.deepStrictEqual(search(`${secret.slice(0, 9)} ${secret.slice(0, 10)} secret al`), { secret: 3, other: 2 })
  })
})
