import { Clock, Console, Effect, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { generateKeyring } from "../crypto/Keyring.ts"
import type { KeyStatus, RewrapProgress, RewrapResult } from "../service/Rotation.ts"
import { parse } from "./parse.ts"
import { RewrapIncomplete } from "./RewrapIncomplete.ts"
import { root } from "./Root.ts"
import { rotate } from "./rotate.ts"

const generate = Command.make(
  "generate",
  {},
  Effect.fnUntraced(function* () {
    const { json } = yield* root
    const keyring = generateKeyring(new Date(yield* Clock.currentTimeMillis))
    yield* Console.log(json ? JSON.stringify({ keyring }) : keyring)
  })
).pipe(Command.withDescription("Print a keyring of one new key: `umask 077; byok keyring generate > keyring`"))

const Rate = Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 1, maximum: 1_000_000 }))

/** Tells how far it is, once a second at most. */
const tellProgress = () => {
  let next = 0
  return ({ failed, rewrapped, total }: RewrapProgress) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => {
      if (now < next) return Effect.void
      next = now + 1000
      return Console.error(`rewrapped ${rewrapped} of ${total} credentials, ${failed} failed`)
    })
}

const resultLines = ({ failed, left, rewrapped }: RewrapResult) =>
  [
    `rewrapped  ${rewrapped}`,
    `left       ${left}`,
    ...failed.map(({ id, reason }) => `failed     ${id}: ${reason}`)
  ].join("\n")

const rewrap = Command.make(
  "rewrap",
  {
    rate: Flag.String("rate").pipe(
      Flag.withDescription("Credentials a second, at most; 1000 if not given"),
      Flag.withDefault("1000")
    )
  },
  Effect.fnUntraced(function* (given) {
    const { json } = yield* root
    const rate = yield* parse(Rate, given.rate, "--rate must be a whole number from 1 to 1000000.")
    const result = yield* rotate((rotation) => rotation.rewrap({ rate, onProgress: tellProgress() }))
    yield* Console.log(json ? JSON.stringify(result) : resultLines(result))
    if (result.left > 0 || result.failed.length > 0) {
      return yield* new RewrapIncomplete({ message: `Credentials that still name another key: ${result.left}.` })
    }
  })
).pipe(Command.withDescription("Wrap what other keys have wrapped under the first key; the service may run"))

const statusLines = (keys: ReadonlyArray<KeyStatus>) => {
  const width = Math.max(...keys.map(({ kek_id }) => kek_id.length))
  const lines = keys.map(
    ({ credentials, kek_id, may_be_retired, role, wraps }) =>
      `${kek_id.padEnd(width)}  ${role.padEnd(7)}  ${credentials} credentials, ${wraps} wraps` +
      (may_be_retired ? ", may be retired" : "")
  )
  return lines.join("\n")
}

const status = Command.make(
  "status",
  {},
  Effect.fnUntraced(function* () {
    const { json } = yield* root
    const keys = yield* rotate((rotation) => rotation.status())
    yield* Console.log(json ? JSON.stringify({ keys }) : statusLines(keys))
  })
).pipe(Command.withDescription("Show how much each key is used, and which may be retired"))

export const keyringCommand = Command.make("keyring").pipe(
  Command.withDescription("Key-encryption keys"),
  Command.withSubcommands([generate, rewrap, status])
)
