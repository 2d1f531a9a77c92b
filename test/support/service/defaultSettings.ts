import { type Context, Duration, Effect, Layer, Option } from "effect"
import { PublicUrl } from "../../../src/port/Links.ts"
import { PoolLimits } from "../../../src/port/CredentialRepository.ts"
import { Draining } from "../../../src/port/Readiness.ts"
import { RequestTimeout } from "../../../src/runtime/Deadline.ts"
import { queueLimits, QueueLimits } from "../../../src/runtime/FairQueue.ts"
import { makeMemoryBudget, MemoryBudget } from "../../../src/runtime/MemoryBudget.ts"
import { TokensOnly } from "../../../src/service/tokens/Tokens.ts"

/** The service that the test provides, or else this one. */
const orElse = <I, S>(service: Context.Key<I, S>, fallback: () => S) =>
  Layer.effect(service, Effect.map(Effect.serviceOption(service), Option.getOrElse(fallback)))

/** The default settings of services, except those that the test provides. */
export const defaultSettings = Layer.mergeAll(
  orElse(RequestTimeout, () => Duration.seconds(3)),
  orElse(PublicUrl, () => "http://127.0.0.1:3000"),
  orElse(TokensOnly, () => false),
  orElse(QueueLimits, () => queueLimits(2000)),
  orElse(MemoryBudget, () => makeMemoryBudget(192 * 1024 * 1024)),
  orElse(PoolLimits, () => ({ credentials: 1000, bytes: 16 * 1024 * 1024 }))
)

/** A service that nobody asks to stop. */
export const neverDraining = Layer.succeed(Draining, () => false)
