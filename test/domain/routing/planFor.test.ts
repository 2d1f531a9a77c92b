import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pasts from "../../../src/domain/routing/Past.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import { planLaws } from "./planLaws.ts"
import { propertyRuns } from "./propertyRuns.ts"
import { anyRoutingCase, plannerOf } from "./RoutingCase.ts"
import { describe, it } from "../../support/it.ts"

const plan = plannerOf({ ...Pasts, ...Planning, ...Pooling })
const laws = Object.entries(planLaws)

describe("a plan", () => {
  // One property, as making the cases takes longer than most laws.
  it.prop(
    `keeps its laws: ${laws.map(([number]) => number).join(", ")}`,
    [anyRoutingCase],
    ([routingCase]) => {
      for (const [number, { law, title }] of laws) {
        try {
          law(plan, routingCase)
        } catch (cause) {
          throw new Error(`not true of a plan: it ${title} (${number})`, { cause })
        }
      }
    },
    propertyRuns
  )
})
