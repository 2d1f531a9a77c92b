import { Effect, Layer } from "effect"
import { KeyringReload } from "../port/KeyringReload.ts"
import { Meter } from "./Meter.ts"

/** Counts the reloads of the keyring below it. */
export const layer = Layer.effect(
  KeyringReload,
  Effect.gen(function* () {
    const { reload } = yield* KeyringReload
    const { counter } = yield* Meter
    const [ok, failed] = [
      counter("byok.keyring.reloads", { result: "ok" }),
      counter("byok.keyring.reloads", { result: "failed" })
    ]
    return {
      reload: Effect.onExit(reload, (exit) => Effect.sync(exit._tag === "Success" ? ok : failed))
    }
  })
)
