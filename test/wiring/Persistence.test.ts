import { Clock, Duration, Effect, Fiber, Option } from "effect"
import { TestClock } from "effect/testing"
import { chmodSync, chownSync, writeFileSync } from "node:fs"
import type { Socket } from "node:net"
import { join } from "node:path"
import { openDatabase } from "../../src/wiring/Persistence.ts"
import { prepare } from "../../src/sql/embedded/DataDirectory.ts"
import { locate } from "../../src/sql/embedded/PostgresBinaries.ts"
import { eventually } from "../support/process/eventually.ts"
import { logLines } from "../support/process/Recording.ts"
import { databaseSettings, settingsFor } from "../support/database/freshDatabase.ts"
import { listen } from "../support/database/listen.ts"
import { refusingPostgres } from "../support/database/RefusingPostgres.ts"
import { selfSignedCertificate } from "../support/keys/selfSignedCertificate.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const urlOf = (port: number) => `postgres://canary:canary@127.0.0.1:${port}/canary`

/** Opens a database in the background; `untilAsleep` waits until it has slept a number of times, or has ended. */
const openOn = Effect.fnUntraced(function* (port: number) {
  const lines: Array<string> = []
  const clock = yield* Clock.Clock
  const slept: Array<number> = []
  const sleep = (duration: Duration.Duration) => {
    slept.push(Duration.toMillis(duration))
    return clock.sleep(duration)
  }
  const counting = Object.create(clock, { sleep: { value: sleep } }) as Clock.Clock
  const opening = yield* openDatabase(settingsFor(urlOf(port))).pipe(
    Effect.provideService(Clock.Clock, counting),
    Effect.provide(logLines(lines)),
    Effect.forkChild
  )
  const isOver = () => opening.pollUnsafe() !== undefined
  const untilAsleep = (times: number, time: number) =>
    eventually(
      `asleep ${times} times for ${time} ms`,
      Effect.sync(() => isOver() || slept.filter((duration) => duration === time).length >= times)
    )
  return { isOver, lines, refusal: Effect.flip(Fiber.join(opening)), untilAsleep }
})

/** The sentence that refuses a database without a retry: nothing moves the clock. */
const refusalOf = (url: string, ca?: string) =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const file = join(yield* temporaryDirectory, "ca.pem")
    if (ca !== undefined) writeFileSync(file, ca)
    const databaseCaFile = ca === undefined ? Option.none() : Option.some(file)
    const { _tag, message } = yield* openDatabase({ ...settingsFor(url), databaseCaFile }).pipe(
      Effect.flip,
      Effect.provide(logLines(lines))
    )
    assert.strictEqual(_tag, "InvalidSetting")
    assert.deepStrictEqual(lines, [])
    return message
  })

describe("opening the database at the start of the service", () => {
  it.effect("retries a database that is still starting (57P03) for ten seconds, and logs it once", function* () {
    const { port, refused } = yield* refusingPostgres("57P03", "no, canary")
    const { isOver, lines, refusal, untilAsleep } = yield* openOn(port)
    for (let times = 1; times <= 20; times++) {
      yield* untilAsleep(times, 500)
      assert.deepStrictEqual([refused(), isOver()], [times, false])
      assert.lengthOf(lines, times <= 2 ? 0 : 1)
      yield* TestClock.adjust("500 millis")
    }
    const { _tag, message } = yield* refusal
    assert.strictEqual(_tag, "InvalidSetting")
    assert.strictEqual(message, "DATABASE_URL cannot be reached (57P03); gave up after 10 seconds.")
    assert.strictEqual(refused(), 21)
    assert.deepStrictEqual(lines, ["Warn DATABASE_URL cannot be reached (57P03); retrying for up to 10 seconds"])
  })

  const connectTimeout = Duration.toMillis(databaseSettings.connectTimeout)
  it.effect.each<readonly [name: string, treat: (socket: Socket) => unknown, code: string, sleeps: Array<number>]>([
    ["closes connections", (socket) => socket.destroy(), "ECONNRESET", [500]],
    ["does not answer", () => undefined, "ETIMEDOUT", [connectTimeout, 500]]
  ])("retries a database that %s, and puts the error code in log and error", function* ([, treat, code, sleeps]) {
    const { isOver, lines, refusal, untilAsleep } = yield* openOn(yield* listen(treat))
    for (let times = 1; !isOver(); times++) {
      for (const time of sleeps) {
        yield* untilAsleep(times, time)
        yield* TestClock.adjust(time)
      }
    }
    const { message } = yield* refusal
    assert.match(message, new RegExp(`^DATABASE_URL cannot be reached \\(${code}\\); gave up after 1[01] seconds\\.$`))
    assert.deepStrictEqual(lines, [`Warn DATABASE_URL cannot be reached (${code}); retrying for up to 10 seconds`])
  })

  it.effect.each<readonly [sqlstate: string, fault: string]>([
    ["28P01", ": the user or password was rejected (28P01)."],
    ["28000", ": the user or password was rejected (28000)."],
    ["3D000", ": the database does not exist (3D000)."],
    ["42501", ": the user lacks a permission (42501); run `byok migrate` as the owner of the database."],
    ["53300", " cannot be used: the database takes no more connections (UnknownError 53300)."]
  ])("does not retry a database that answers with SQLSTATE %s", function* ([sqlstate, fault]) {
    const { port, refused } = yield* refusingPostgres(sqlstate, "no, canary")
    assert.strictEqual(yield* refusalOf(urlOf(port)), `DATABASE_URL${fault}`)
    assert.strictEqual(refused(), 1)
  })

  it.effect("does not retry a database that wants a password if the URL has none", function* () {
    const { port } = yield* refusingPostgres("57P03", "no, canary")
    assert.strictEqual(
      yield* refusalOf(`postgres://canary@127.0.0.1:${port}/canary`),
      "DATABASE_URL: the user or password was rejected."
    )
  })

  it.effect("does not retry if the certificate is not trusted, and names the setting to use", function* () {
    const tls = selfSignedCertificate("127.0.0.1")
    const { port } = yield* refusingPostgres("57P03", "no, canary", { tls })
    for (const ca of [undefined, selfSignedCertificate("127.0.0.1").certificate]) {
      assert.strictEqual(
        yield* refusalOf(`${urlOf(port)}?sslmode=require`, ca),
        "DATABASE_URL: its certificate is not trusted (DEPTH_ZERO_SELF_SIGNED_CERT); set DATABASE_CA_FILE to trust other authorities."
      )
    }
  })

  it.effect("refuses authorities that another user can change", function* () {
    const file = join(yield* temporaryDirectory, "ca.pem")
    writeFileSync(file, selfSignedCertificate("127.0.0.1").certificate)
    const settings = { ...settingsFor("postgres://canary@127.0.0.1:1/canary"), databaseCaFile: Option.some(file) }
    const refused = (by: string) =>
      `DATABASE_CA_FILE must be a file that only root and this user can change; found that ${by} can.`
    chmodSync(file, 0o646)
    assert.strictEqual((yield* Effect.flip(openDatabase(settings))).message, refused("every user"))
    chmodSync(file, 0o644)
    if (process.getuid?.() === 0) {
      chownSync(file, 65534, 65534)
      assert.strictEqual((yield* Effect.flip(openDatabase(settings))).message, refused("user 65534"))
    }
  })

  it.effect("does not retry if the certificate is expired or for another host", function* () {
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

  it.effect("does not retry a database without TLS if the URL requires TLS", function* () {
    const { port, refused } = yield* refusingPostgres("57P03", "no, canary")
    const sentence = yield* refusalOf(`${urlOf(port)}?sslmode=require`)
    assert.strictEqual(
      sentence,
      "DATABASE_URL: the database does not speak TLS; leave sslmode out of the URL for one on this machine."
    )
    assert.strictEqual(refused(), 0)
  })

  it.live("if the embedded database fails, names it in the error, not DATABASE_URL", function* () {
    const dataDirectory = yield* temporaryDirectory
    const { cluster } = yield* prepare(dataDirectory, yield* locate())
    writeFileSync(join(cluster, "pg_hba.conf"), "local all all reject\n")
    const settings = { ...settingsFor(""), databaseUrl: Option.none(), dataDirectory }
    const { message } = yield* Effect.flip(openDatabase(settings))
    assert.strictEqual(message, "The embedded database: the user or password was rejected (28000).")
  })
})
