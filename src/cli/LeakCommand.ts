import { Console, Effect, Option } from "effect"
import { Command } from "effect/cli"
import { LeakedKeys } from "../port/LeakedKeys.ts"
import { NotKnown } from "../service/accounts/Accounts.ts"
import { LeakResponse, type LeakSearchProgress, type LeakSearchResult } from "../service/credentials/LeakResponse.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { readSecretText } from "../wiring/PrivateFiles.ts"
import { account, credentialId, optionalText, toggle } from "./Arguments.ts"
import { CommandFailed, makeProgress, print, printable, printJsonOr, StandardStreams } from "./Output.ts"

const withLeakResponse = CommandLayers.asOperatorWith(LeakResponse, CommandLayers.sealing)

const withLeakedKeys = CommandLayers.asOperatorWith(LeakedKeys, CommandLayers.withoutKeyring)

const progressLine = ({ found, opened, searched, total }: LeakSearchProgress) =>
  `searched ${searched} of ${total} credentials, ${opened} opened, ${found} found`

const searchedFraction = ({ searched, total }: LeakSearchProgress) => searched / Math.max(1, total)

const resultLines = ({ found, unopened, unopened_total }: LeakSearchResult) => [
  ...found.map(
    ({ account_id, credential_id, key_version, label, parked, provider, workspace_id }) =>
      `found     ${credential_id}  account: ${account_id}, workspace: ${workspace_id}, provider: ${provider}, ` +
      `label: ${label}, key version: ${key_version}${parked ? ", parked" : ""}`
  ),
  ...unopened.map(
    ({ account_id, credential_id, reason }) => `unopened  ${credential_id}  account: ${account_id}: ${reason}`
  ),
  ...(unopened_total > unopened.length ? [`and ${unopened_total - unopened.length} more that did not open`] : []),
  ...(found.length === 0 ? ["No credential that was compared holds it."] : [])
]

const find = Command.make(
  "find",
  {
    file: optionalText("file", "File of mode 0400 or 0600 with the leaked text (default: standard input)"),
    all: toggle("all", "Open every key, also where the label rules the leaked one out"),
    park: toggle("park", "Park the keys that are found: no router uses them until they are replaced")
  },
  Effect.fnUntraced(function* ({ all, file, park }) {
    const { stdin } = yield* StandardStreams
    if (Option.isNone(file) && stdin.isTTY === true) {
      yield* Console.error("Reading the leaked text from standard input, up to Ctrl-D.")
    }
    const text = yield* readSecretText("The leaked text", file, stdin)
    const progress = yield* makeProgress(progressLine, searchedFraction)
    const result = yield* withLeakResponse(({ find }) => find({ text, all, park, onProgress: progress.report })).pipe(
      Effect.ensuring(progress.end)
    )
    const parkedCount = result.found.filter(({ parked }) => parked).length
    const change = park
      ? `keys marked as leaked: ${parkedCount}, and \`byok leak clear ID --account ID\` ends that`
      : undefined
    yield* printJsonOr(result, resultLines(result).map(printable).join("\n"), change)
    if (result.unopened_total > 0) {
      return yield* new CommandFailed({
        message: `Credentials that may hold it and did not open: ${result.unopened_total}.`
      })
    }
  })
).pipe(Command.withDescription("Find the credentials of all accounts that hold a leaked provider key"))

const clear = Command.make("clear", { account, id: credentialId }, ({ account, id }) =>
  Effect.gen(function* () {
    const cleared = yield* withLeakedKeys(({ clear }) => clear(account, id))
    if (Option.isNone(cleared)) return yield* new NotKnown({ kind: "credential" })
    const { account_id, credential_id, workspace_id } = cleared.value
    yield* print({ account_id, workspace_id, credential_id, parked: false }, "the key is offered to routers again")
  })
).pipe(Command.withDescription("Offer a key that was marked as leaked to routers again"))

export const leakCommand = Command.make("leak").pipe(
  Command.withDescription("Provider keys that have leaked"),
  Command.withSubcommands([find, clear])
)
