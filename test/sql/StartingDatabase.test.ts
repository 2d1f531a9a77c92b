import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Logger, Option } from "effect"
import { TestClock } from "effect/testing"
import { writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { openDatabase } from "../../src/Persistence.ts"
import { prepare } from "../../src/sql/embedded/DataDirectory.ts"
import { locate } from "../../src/sql/embedded/PostgresBinaries.ts"
import { eventually } from "../support/eventually.ts"
import { settingsFor } from "../support/freshDatabase.ts"
import { refusingPostgres } from "../support/RefusingPostgres.ts"
import { selfSignedCertificate } from "../support/selfSignedCertificate.ts"
import { temporaryDirectory } from "../support/temporaryDirectory.ts"

const capturing = (lines: Array<string>) =>
  Logger.layer([Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))])

const urlOf = (port: number) => `postgres://canary:canary@127.0.0.1:${port}/canary`

/** Opens a database in the background, and tells when it has been asked so often, or will not be any more. */
const openOn = Effect.fnUntraced(function* (port: number, asked: () => number) {
  const lines: Array<string> = []
  const opening = yield* Effect.forkChild(Effect.provide(openDatabase(settingsFor(urlOf(port))), capturing(lines)))
  const untilAsked = (count: number) =>
    eventually(
      `asked ${count} times`,
      Effect.sync(() => asked() >= count || opening.pollUnsafe() !== undefined)
    )
  return { lines, refusal: Effect.flip(Fiber.join(opening)), untilAsked }
})

/** The sentence with which a database is refused that is not tried again: nobody moves the clock. */
const refusalOf = (url: string, ca?: string) =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const file = join(yield* temporaryDirectory, "ca.pem")
    if (ca !== undefined) writeFileSync(file, ca)
    const databaseCaFile = ca === undefined ? Option.none() : Option.some(file)
    const { _tag, message } = yield* openDatabase({ ...settingsFor(url), databaseCaFile }).pipe(
      Effect.flip,
      Effect.provide(capturing(lines))
    )
    assert.strictEqual(_tag, "InvalidSetting")
    assert.deepStrictEqual(lines, [])
    return message
  })

/** A port whose connections are left without an answer, or closed at once. */
const listen = (treat: "ignore" | "close") =>
  Effect.acquireRelease(
    Effect.callback<{ readonly port: number; readonly asked: () => number; readonly close: () => void }>((resume) => {
      const open = new Set<{ destroy: () => void }>()
      const server = createServer((socket) => {
        open.add(socket.on("error", () => socket.destroy()))
        if (treat === "close") socket.destroy()
      }).listen(0, "127.0.0.1", () => {
        const address = server.address()
        assert(typeof address === "object" && address !== null)
        const close = () => {
          for (const socket of open) socket.destroy()
          server.close()
        }
        resume(Effect.succeed({ port: address.port, asked: () => open.size, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  )

describe("at the start of the service a database", () => {
  it.effect("that is still starting (57P03) is asked again for ten seconds; the log and the end say so", () =>
    Effect.gen(function* () {
      const { port, refused } = yield* refusingPostgres("57P03", "no, canary")
      const { lines, refusal, untilAsked } = yield* openOn(port, refused)
      for (let count = 1; count <= 21; count++) {
        yield* untilAsked(count)
        assert.strictEqual(refused(), count)
        const seconds = (count - 1) / 2
        yield* eventually(
          "the attempt is over",
          Effect.sync(() => lines.length === (seconds < 1 ? 0 : 1))
        )
        yield* TestClock.adjust("500 millis")
      }
      const { _tag, message } = yield* refusal
      assert.strictEqual(_tag, "InvalidSetting")
      assert.strictEqual(message, "DATABASE_URL cannot be reached (57P03), tried for 10 seconds.")
      assert.strictEqual(refused(), 21)
      assert.deepStrictEqual(lines, ["Warn DATABASE_URL cannot be reached (57P03); it is tried for 10 seconds"])
    })
  )

  it.effect.each<readonly [treat: "ignore" | "close", code: string]>([
    ["close", "ECONNRESET"],
    ["ignore", "ETIMEDOUT"]
  ])("whose connections meet nobody (%s) is asked again, and %s says what happens", ([treat, code]) =>
    Effect.gen(function* () {
      const { asked, port } = yield* listen(treat)
      const { lines, refusal, untilAsked } = yield* openOn(port, asked)
      const finished = yield* Effect.forkChild(refusal)
      for (let count = 1; finished.pollUnsafe() === undefined; count++) {
        yield* untilAsked(count)
        yield* TestClock.adjust(treat === "close" ? "500 millis" : "5500 millis")
      }
      const { message } = yield* Fiber.join(finished)
      assert.match(message, new RegExp(`^DATABASE_URL cannot be reached \\(${code}\\), tried for 1[01] seconds\\.$`))
      assert.deepStrictEqual(lines, [`Warn DATABASE_URL cannot be reached (${code}); it is tried for 10 seconds`])
    })
  )

  it.effect.each<readonly [sqlstate: string, fault: string]>([
    ["28P01", ": user or password is refused (28P01)."],
    ["28000", ": user or password is refused (28000)."],
    ["3D000", ": there is no such database (3D000)."],
    ["42501", ": the user lacks a permission (42501)."],
    ["53300", " cannot be used: UnknownError 53300."]
  ])("that says %s is not asked again", ([sqlstate, fault]) =>
    Effect.gen(function* () {
      const { port, refused } = yield* refusingPostgres(sqlstate, "no, canary")
      assert.strictEqual(yield* refusalOf(urlOf(port)), `DATABASE_URL${fault}`)
      assert.strictEqual(refused(), 1)
    })
  )

  it.effect("that asks for a password is not asked again without one", () =>
    Effect.gen(function* () {
      const { port } = yield* refusingPostgres("57P03", "no, canary")
      assert.strictEqual(
        yield* refusalOf(`postgres://canary@127.0.0.1:${port}/canary`),
        "DATABASE_URL: user or password is refused."
      )
    })
  )

  const good = selfSignedCertificate("127.0.0.1")
  it.effect.each<readonly [name: string, tls: typeof good | undefined, ca: string | undefined, fault: string]>([
    ["vouches for itself", good, undefined, "is not trusted (DEPTH_ZERO_SELF_SIGNED_CERT)"],
    [
      "others do not vouch for",
      good,
      selfSignedCertificate("127.0.0.1").certificate,
      "is not trusted (DEPTH_ZERO_SELF_SIGNED_CERT)"
    ]
  ])("whose certificate %s is not asked again, and the way out is named", ([, tls, ca, fault]) =>
    Effect.gen(function* () {
      const { port } = yield* refusingPostgres("57P03", "no, canary", { ...(tls === undefined ? {} : { tls }) })
      assert.strictEqual(
        yield* refusalOf(`${urlOf(port)}?sslmode=require`, ca),
        `DATABASE_URL: its certificate ${fault}; DATABASE_CA_FILE names other authorities.`
      )
    })
  )

  it.effect("whose certificate is for another host, or is over, is not asked again", () =>
    Effect.gen(function* () {
      const certificates = [
        [selfSignedCertificate("localhost"), "is for another host (ERR_TLS_CERT_ALTNAME_INVALID)"],
        [selfSignedCertificate("127.0.0.1", "20210101000000Z"), "is not valid (CERT_HAS_EXPIRED)"]
      ] as const
      for (const [tls, fault] of certificates) {
        const { port } = yield* refusingPostgres("57P03", "no, canary", { tls })
        const sentence = yield* refusalOf(`${urlOf(port)}?sslmode=require`, tls.certificate)
        assert.strictEqual(sentence, `DATABASE_URL: its certificate ${fault}.`)
      }
    })
  )

  it.effect("that declines TLS is not asked again", () =>
    Effect.gen(function* () {
      const { port, refused } = yield* refusingPostgres("57P03", "no, canary")
      const sentence = yield* refusalOf(`${urlOf(port)}?sslmode=require`)
      assert.strictEqual(sentence, "DATABASE_URL: the database does not speak TLS.")
      assert.strictEqual(refused(), 0)
    })
  )

  it.live("that is embedded is not called by a setting that nobody has set", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* temporaryDirectory
      const { cluster } = yield* prepare(dataDirectory, yield* locate())
      writeFileSync(join(cluster, "pg_hba.conf"), "local all all reject\n")
      const settings = { ...settingsFor(""), databaseUrl: Option.none(), dataDirectory }
      const { message } = yield* Effect.flip(openDatabase(settings))
      assert.strictEqual(message, "The embedded database: user or password is refused (28000).")
    })
  )
})
