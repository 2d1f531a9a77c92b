import { Arbitrary, Cause, Effect, Exit } from "effect"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { MessageTap } from "../../../src/sql/connection/Transport.ts"
import { assert, describe, it, layerLive } from "../../support/it.ts"
import { bytes, elementOf, integer, oneOf, text } from "../../support/memory/arbitraries.ts"
import { created, minimal } from "../../support/http/Bodies.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { postgresMessage } from "../../support/database/RefusingPostgres.ts"
import { assertRefused } from "../../support/http/Refusal.ts"
import { TestService } from "../../support/http/TestService.ts"

const notice = (sqlstate: string, words: string, type = "N", file = "xact.c") =>
  postgresMessage(type, Buffer.from(`SWARNING\0VWARNING\0C${sqlstate}\0M${words}\0F${file}\0\0`))

const sent = (bytes: Buffer, reported: 0 | 1) => ({ bytes, reported })

/** A message of PostgreSQL, and how often it must be reported. */
const anyMessage = oneOf(
  Arbitrary.map(text(0, 20), (words) => sent(notice("01000", words), 1)),
  Arbitrary.map(elementOf(["00000", "01004", "01003", "010000", "57P01"]), (sqlstate) =>
    sent(notice(sqlstate, "C01000 is quoted, N and all"), 0)
  ),
  Arbitrary.map(elementOf(["E", "D", "C", "S", "T", "A"]), (type) => sent(notice("01000", "not a notice", type), 0)),
  Arbitrary.map(oneOf(bytes(0, 40), Arbitrary.Constant(notice("01000", "in a row"))), (body) =>
    sent(postgresMessage("D", body), 0)
  ),
  Arbitrary.Constant(sent(notice("01000", "Citus reaches no node", "N", "remote_commands.c"), 0)),
  Arbitrary.Constant(sent(postgresMessage("N", Buffer.from("\0")), 0)),
  Arbitrary.Constant(sent(postgresMessage("I", Buffer.alloc(0)), 0))
)

const stream = Arbitrary.all({
  messages: Arbitrary.array(anyMessage, { minLength: 0, maxLength: 12 }),
  sizes: Arbitrary.array(integer(1, 30), { minLength: 1, maxLength: 20 })
})

const chunksOf = (whole: Buffer, sizes: ReadonlyArray<number>) => {
  const chunks: Array<Buffer> = []
  for (let at = 0, turn = 0; at < whole.length; turn++) {
    const size = sizes[turn % sizes.length] ?? 1
    chunks.push(whole.subarray(at, at + size))
    at += size
  }
  return chunks
}

const ready = postgresMessage("Z", Buffer.from("I"))

const nothing = { onUnreplicated: () => {}, onReadOnly: () => {}, onStandby: () => {}, onReady: () => {} }

const countIn = (chunks: ReadonlyArray<Buffer>) => {
  let reported = 0
  const tap = new MessageTap({ ...nothing, onUnreplicated: () => (reported += 1) })
  for (const chunk of [ready, ...chunks]) tap.read(chunk)
  return reported
}

describe("the notices of PostgreSQL (R6)", () => {
  it.prop(
    "are reported if their SQLSTATE is 01000, and no others, however the bytes are split",
    [stream],
    ([{ messages, sizes }]) => {
      const expected = messages.reduce((sum, { reported }) => sum + reported, 0)
      const whole = Buffer.concat(messages.map(({ bytes }) => bytes))
      const oneByOne = Array.from(whole, (byte) => Buffer.of(byte))
      return [chunksOf(whole, sizes), [whole], oneByOne].every((chunks) => countIn(chunks) === expected)
    },
    { arbitrary: { runs: 1000 } }
  )

  it("are not reported before the connection is ready, such as a collation version warning", () => {
    const reported: Array<string> = []
    const tap = new MessageTap({
      ...nothing,
      onUnreplicated: () => reported.push("01000"),
      onReady: () => reported.push("ready")
    })
    for (const bytes of [notice("01000", "collation"), ready, notice("01000", "replication")]) tap.read(bytes)
    assert.deepStrictEqual(reported, ["ready", "01000"])
  })

  it.prop(
    "are recognised if they tell of a refused write or a standby server, however the bytes are split (F2)",
    [
      elementOf(["refused", "standby", "leader", "other"]),
      Arbitrary.array(integer(1, 9), { minLength: 1, maxLength: 9 })
    ],
    ([kind, sizes]) => {
      const said: Readonly<Record<string, Buffer>> = {
        refused: notice("25006", "cannot execute INSERT in a read-only transaction", "E"),
        standby: postgresMessage("S", Buffer.from("in_hot_standby\0on\0")),
        leader: postgresMessage("S", Buffer.from("in_hot_standby\0off\0")),
        other: notice("23505", "C25006 is quoted", "E")
      }
      const heard: Array<string> = []
      const tap = new MessageTap({
        ...nothing,
        onReadOnly: () => heard.push("refused"),
        onStandby: () => heard.push("standby")
      })
      for (const chunk of chunksOf(Buffer.concat([said[kind] ?? ready, ready]), sizes)) tap.read(chunk)
      return heard.join() === (kind === "refused" || kind === "standby" ? kind : "")
    }
  )

  it.prop("would be reported falsely by a plain text search (control)", [integer(0, 9)], ([n]) => {
    const row = notice("01000", String(n), "D")
    return row.includes("C01000\0") && countIn([row]) === 0
  })
})

const raise = (level: string) => `
  CREATE OR REPLACE FUNCTION say() RETURNS trigger LANGUAGE plpgsql
  AS $$ BEGIN RAISE ${level} 'a word'; RETURN NEW; END $$`

layerLive(TestService.recordedWith({}))("an insert during which PostgreSQL sends a notice", (it) => {
  const saying = (level: string) =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      yield* sql.unsafe(raise(level))
      yield* sql.unsafe(
        "CREATE OR REPLACE TRIGGER say BEFORE INSERT ON credentials FOR EACH ROW EXECUTE FUNCTION say()"
      )
    })

  it.effect("create answers 500 if PostgreSQL sends SQLSTATE 01000, alone and batched (D11, R6)", function* () {
    const { account_id, create, workspace_id } = yield* TestService.newTenant
    const { insert } = yield* CredentialRepository
    yield* saying("WARNING")
    const exit = yield* Effect.exit(insert(account_id, plainCredential(workspace_id), plainSealedKey()))
    assert(Exit.isFailure(exit))
    assert.deepStrictEqual(
      Cause.squash(exit.cause),
      new DatabaseFailure({ kind: "UnknownOutcome", sqlstate: "01000", constraint: undefined })
    )
    const one = create(minimal)
    assertRefused(yield* one, "InternalError")
    const many = yield* Effect.all(Array(8).fill(one) as Array<typeof one>, { concurrency: "unbounded" })
    for (const answer of many) assertRefused(answer, "InternalError")
  })

  it.effect("create answers 201 if PostgreSQL sends another notice or none (control)", function* () {
    const { sql } = yield* TestService
    const { create } = yield* TestService.newTenant
    yield* saying("NOTICE")
    created(yield* create(minimal))
    yield* sql`DROP TRIGGER say ON credentials`
    created(yield* create(minimal))
  })
})
