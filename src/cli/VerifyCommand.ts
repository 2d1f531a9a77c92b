import { Effect } from "effect"
import { Command } from "effect/cli"
import { KeyCheck } from "../service/credentials/KeyCheck.ts"
import type { ScanProgress } from "../service/credentials/scanKeys.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { CommandFailed, makeProgress, printJsonOr } from "./Output.ts"

const progressLine = ({ opened, searched, total }: ScanProgress) =>
  `searched ${searched} of ${total} credentials, ${opened} opened`

const searchedFraction = ({ searched, total }: ScanProgress) => searched / Math.max(1, total)

const withKeyCheck = CommandLayers.asOperatorWith(KeyCheck, CommandLayers.sealing)

export const verifyCommand = Command.make("verify", {}, () =>
  Effect.gen(function* () {
    const progress = yield* makeProgress(progressLine, searchedFraction)
    const result = yield* withKeyCheck(({ openAll }) => openAll(progress.report)).pipe(Effect.ensuring(progress.end))
    const { opened, searched, unopened, unopened_total } = result
    const lines = [
      `opened    ${opened} of ${searched} keys`,
      ...unopened.map(
        ({ account_id, credential_id, reason }) => `unopened  ${credential_id}  account: ${account_id}: ${reason}`
      ),
      ...(unopened_total > unopened.length ? [`and ${unopened_total - unopened.length} more`] : [])
    ]
    yield* printJsonOr(result, lines.join("\n"))
    if (unopened_total > 0) {
      return yield* new CommandFailed({ message: `Keys that did not open: ${unopened_total}.` })
    }
  })
).pipe(Command.withDescription("Open every stored key, for example after a restore; shows and changes none"))
