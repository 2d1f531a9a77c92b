import { Layer } from "effect"
import { PublicUrl } from "../port/Links.ts"
import { RequestTimeout } from "../runtime/Deadline.ts"
import { queueLimits, QueueLimits } from "../runtime/FairQueue.ts"
import * as MemoryBudget from "../runtime/MemoryBudget.ts"
import { TokensOnly } from "../service/tokens/Tokens.ts"
import { publicUrlOf, type Settings } from "./Settings.ts"

/** The settings that services take when they are made. None has a default that a service could use instead. */
export const layer = (settings: Settings) =>
  Layer.mergeAll(
    Layer.succeed(RequestTimeout, settings.database.deadline),
    Layer.succeed(PublicUrl, publicUrlOf(settings)),
    Layer.succeed(TokensOnly, settings.tokensOnly),
    Layer.succeed(QueueLimits, queueLimits(settings.database.queue)),
    MemoryBudget.layer(settings.memoryBudget)
  )
