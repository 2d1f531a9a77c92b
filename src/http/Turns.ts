import { Context, Effect, Layer } from "effect"
import { QueueLimits } from "../port/QueueLimits.ts"
import { makeFairTurns } from "./makeFairTurns.ts"

/** The turns of the parties that one server serves. A request holds none while its body arrives. */
export class Turns extends Context.Service<Turns, ReturnType<typeof makeFairTurns>>()("byok/Turns") {
  static readonly layer = Layer.effect(
    this,
    Effect.map(QueueLimits, ({ account }) => makeFairTurns(account))
  )
}
