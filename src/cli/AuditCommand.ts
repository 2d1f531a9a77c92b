import { Console, Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { Audit, type AuditReport } from "../service/audit/Audit.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { flag } from "./Arguments.ts"
import { lines, printJsonOr, writeOut } from "./Output.ts"

const withAudit = CommandLayers.asOperatorWith(Audit, CommandLayers.withoutKeyring)

const Hash = Schema.String.check(Schema.isPattern(/^[a-f0-9]{64}$/))
const Seq = Schema.String.check(Schema.isPattern(/^\d{1,15}$/))

const reportLines = ({ entries, events, head, last_at, last_seq, unsealed }: AuditReport) =>
  lines({ entries, events, last: last_seq === null ? null : `${last_seq}, ${last_at}`, unsealed, head })

const hashFlag = (name: string, description: string) =>
  flag(name, description, Hash, "be a hash, 64 lowercase hexadecimal characters").pipe(Flag.optional)

const expect = hashFlag("expect", "Hash of an earlier head, kept elsewhere")

const from = hashFlag("from", "Verify only what came after the head with this hash, kept elsewhere")

const verify = Command.make("verify", { expect, from }, ({ expect, from }) =>
  Effect.gen(function* () {
    const [expectedHash, startHash] = [Option.getOrUndefined(expect), Option.getOrUndefined(from)]
    const report = yield* withAudit((audit) => audit.verify(expectedHash, startHash))
    const { fault } = report
    const faultSummary = fault === null ? null : { kind: fault.kind, seq: Number(fault.seq) }
    // A fault in the log matters more than output that could not be written.
    yield* Effect.mapError(
      printJsonOr({ ...report, fault: faultSummary }, reportLines(report)),
      (outputFailure) => fault ?? outputFailure
    )
    if (fault !== null) return yield* fault
  })
).pipe(Command.withDescription("Detect events that were edited, removed or inserted after sealing"))

const after = flag(
  "after",
  "Start after this `seq` (default: at the beginning)",
  Seq,
  "be a whole number: the `seq` of an event"
).pipe(Flag.withDefault("0"))

const exportEvents = Command.make("export", { after }, ({ after }) =>
  Effect.gen(function* () {
    const head = yield* withAudit((audit) => audit.export(BigInt(after), writeOut))
    if (Option.isSome(head)) {
      yield* Console.error(`Sealed up to ${head.value.last_seq}, with hash ${head.value.hash}`)
    }
  })
).pipe(Command.withDescription("Print every sealed event, one JSON object per line"))

export const auditCommand = Command.make("audit").pipe(
  Command.withDescription("What was done, and by whom"),
  Command.withSubcommands([verify, exportEvents])
)
