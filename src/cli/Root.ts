import { Command, Flag } from "effect/cli"

/** `byok`, with the flag that all subcommands share. */
export const root = Command.make("byok").pipe(
  Command.withSharedFlags({
    json: Flag.Boolean("json").pipe(
      Flag.withDescription(
        "Print exactly one JSON object on standard output; `audit export` and `credential import` print one per line"
      ),
      Flag.withDefault(false)
    )
  }),
  Command.withDescription("Stores customers' provider credentials and manages who may use them.")
)
