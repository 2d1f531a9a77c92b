import { Console, DateTime, Effect, Option, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { KekId, kekIdForm } from "../domain/Identifiers.ts"
import { type KeyStatus, type RewrapProgress, type RewrapResult, Rotation } from "../service/keyring/Rotation.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { readSecretText } from "../wiring/PrivateFiles.ts"
import { argument, flag, toggle } from "./Arguments.ts"
import { CommandFailed, makeProgress, print, printJsonOr, StandardStreams, writeWhole } from "./Output.ts"

const generate = Command.make("generate", {}, () =>
  Effect.flatMap(CommandLayers.newKeyring, (keyring) => printJsonOr({ keyring }, keyring))
).pipe(Command.withDescription("Print a keyring with one new key: `umask 077; byok keyring generate > keyring`"))

const withRotation = CommandLayers.asOperatorWith(Rotation, CommandLayers.rotation)

type Editor = CommandLayers.KeyringEditor["Service"]

const withEditor = CommandLayers.asOperatorWith(CommandLayers.KeyringEditor, CommandLayers.keyringEditor)

/** Whether to change the keyring on standard input, and print it, instead of the file. */
const isFilter = Argument.Literals("KEYRING", ["-"]).pipe(
  Argument.withDescription("Read the keyring from standard input and print the changed one, instead of the file"),
  Argument.optional,
  Argument.map(Option.isSome)
)

/** Changes the keyring file, or passes the keyring from standard input to standard output. `changeOf` describes the change. */
const change = <E>(
  filters: boolean,
  edit: (editor: Editor) => Effect.Effect<{ readonly kek_id: string; readonly role: string }, E>,
  changeOf: (kek_id: string) => string
) =>
  Effect.gen(function* () {
    if (!filters) {
      const result = yield* withEditor(edit)
      return yield* print(result, `${changeOf(result.kek_id)} in the keyring file`)
    }
    const { stdin } = yield* StandardStreams
    const text = yield* readSecretText("The keyring", Option.none(), stdin)
    let edited = ""
    const filter = CommandLayers.keyringFilter(text, (keyring) => void (edited = keyring))
    const { kek_id } = yield* CommandLayers.asOperatorWith(CommandLayers.KeyringEditor, filter)(edit)
    yield* writeWhole(edited, changeOf(kek_id))
    yield* Console.error(`${changeOf(kek_id)} in the keyring on standard output.`)
  })

/** Makes a flag for a number of credentials, from 1 to `maximum`. `description` follows "At most this many". */
const countFlag = (name: string, description: string, maximum: number, fallback: number) =>
  flag(
    name,
    `At most this many ${description} (default ${fallback})`,
    Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 1, maximum })),
    `be a whole number from 1 to ${maximum}`
  ).pipe(Flag.withDefault(fallback))

type CredentialCounts = ReadonlyArray<Pick<KeyStatus, "kek_id" | "credentials" | "more_credentials">>

const countText = ({ credentials, more_credentials }: Omit<CredentialCounts[number], "kek_id">) =>
  more_credentials === true ? `${credentials.toLocaleString("en")}+` : String(credentials)

/** The number of credentials under each key that is not retired. */
const countsOf = (keys: ReadonlyArray<KeyStatus>): CredentialCounts =>
  keys
    .filter(({ role }) => role !== "retired")
    .map(({ credentials, kek_id, more_credentials }) =>
      more_credentials === undefined ? { kek_id, credentials } : { kek_id, credentials, more_credentials }
    )

const countLines = (keys: CredentialCounts) => keys.map((key) => `under      ${key.kek_id}: ${countText(key)}`)

const resultLines = ({ failed, left, rewrapped }: RewrapResult, keys: CredentialCounts) =>
  [
    `rewrapped  ${rewrapped}`,
    `left       ${left}`,
    ...countLines(keys),
    ...failed.map(({ id, reason }) => `failed     ${id}: ${reason}`)
  ].join("\n")

const reportDryRun = Effect.gen(function* () {
  const [statuses, left] = yield* withRotation((rotation) => Effect.all([rotation.status(), rotation.outstanding]))
  const keys = countsOf(statuses)
  yield* printJsonOr({ rewrapped: 0, left, failed: [], keys }, [`left       ${left}`, ...countLines(keys)].join("\n"))
})

const progressText = ({ failed, rewrapped, total }: RewrapProgress) =>
  `rewrapped ${rewrapped} of ${total} credentials, ${failed} failed`

const attemptedFraction = ({ failed, rewrapped, total }: RewrapProgress) => (rewrapped + failed) / Math.max(1, total)

const rewrap = Command.make(
  "rewrap",
  {
    batch: countFlag("batch", "credentials per transaction", 10_000, 500),
    dryRun: toggle("dry-run", "Change nothing, only report how many credentials are left"),
    rate: countFlag("rate", "credentials per second", 1_000_000, 1000)
  },
  Effect.fnUntraced(function* ({ batch, dryRun, rate }) {
    if (dryRun) return yield* reportDryRun
    const progress = yield* makeProgress(progressText, attemptedFraction)
    const [result, keys] = yield* withRotation((rotation) =>
      Effect.all([
        Effect.ensuring(rotation.rewrap({ batch, rate, onProgress: progress.report }), progress.end),
        Effect.map(rotation.status(), countsOf)
      ])
    )
    const change = `credentials rewrapped: ${result.rewrapped}, and \`byok keyring status\` shows what is left`
    yield* printJsonOr({ ...result, keys }, resultLines(result, keys), change)
    if (result.left > 0 || result.failed.length > 0) {
      return yield* new CommandFailed({ message: `Credentials that still name another key: ${result.left}.` })
    }
  })
).pipe(Command.withDescription("Rewrap credentials under the first key; the service may be running"))

const statusLines = (keys: ReadonlyArray<KeyStatus>) => {
  const width = Math.max(...keys.map(({ kek_id }) => kek_id.length))
  const lines = keys.map(
    ({ kek_id, may_be_retired, registered_at, role, wraps, ...counts }) =>
      `${kek_id.padEnd(width)}  ${role.padEnd(12)}  credentials: ${countText(counts)}, at most ${wraps} wraps so far` +
      (registered_at === undefined ? "" : `, registered ${DateTime.formatIso(registered_at)}`) +
      (may_be_retired ? ", may be retired" : "")
  )
  return lines.join("\n")
}

const status = Command.make("status", {}, () =>
  withRotation((rotation) => rotation.status()).pipe(Effect.flatMap((keys) => printJsonOr({ keys }, statusLines(keys))))
).pipe(Command.withDescription("Show how much each key is used, and which may be retired"))

/** How many stranded credentials to list. */
const listLimit = 1000

const stranded = Command.make("stranded", {}, () =>
  Effect.gen(function* () {
    const { credentials, total } = yield* withRotation((rotation) => rotation.stranded(listLimit))
    const lines = credentials.map(
      ({ account_id, credential_id, kek_id, workspace_id }) =>
        `${credential_id}  account: ${account_id}, workspace: ${workspace_id}, key: ${kek_id}`
    )
    const more = total > credentials.length ? [`and ${total - credentials.length} more credentials or links`] : []
    yield* printJsonOr(
      { credentials, total },
      total === 0 ? "No credential is stranded." : [...lines, ...more].join("\n")
    )
  })
).pipe(Command.withDescription("List credentials that need a key which this keyring lacks"))

const admit = Command.make("admit", {}, () =>
  withRotation((rotation) => rotation.admit()).pipe(Effect.flatMap((kek_id) => print({ kek_id, role: "primary" })))
).pipe(
  Command.withDescription(
    "Let the first key seal although the database knows no key of this keyring, for example after all its keys were lost"
  )
)

const newId = flag("id", "Id of the new key (default: one made from the date)", KekId, `be ${kekIdForm}`)

const add = Command.make("add", { id: Flag.optional(newId), filters: isFilter }, ({ filters, id }) =>
  change(
    filters,
    (editor) => Effect.map(editor.add(Option.getOrUndefined(id)), (kek_id) => ({ kek_id, role: "pending" })),
    (kek_id) => `key ${kek_id} is pending`
  )
).pipe(Command.withDescription("Add a new key to the keyring; it opens but does not seal yet"))

const kekId = argument("ID", "Id of the key, as `keyring status` shows it", KekId, `be ${kekIdForm}`)

/** Makes the command `promote` or `retire`; `role` is that of the key afterwards. */
const makeEdit = (name: "promote" | "retire", role: string, description: string) =>
  Command.make(name, { kek_id: kekId, filters: isFilter }, ({ filters, kek_id }) =>
    change(
      filters,
      (editor) => Effect.as(editor[name](kek_id), { kek_id, role }),
      () => `key ${kek_id} is ${role}`
    )
  ).pipe(Command.withDescription(description))

const promote = makeEdit("promote", "primary", "Make a key of the keyring the one that seals")

const retire = makeEdit("retire", "retired", "Permanently remove a key that no credential names from the keyring")

export const keyringCommand = Command.make("keyring").pipe(
  Command.withDescription("Key-encryption keys"),
  Command.withSubcommands([generate, add, promote, status, stranded, rewrap, retire, admit])
)
