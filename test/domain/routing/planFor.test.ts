import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import { planLaws } from "./planLaws.ts"
import { propertyRuns } from "./propertyRuns.ts"
import { anyRoutingCase, plannerOf } from "./RoutingCase.ts"
import { describe, it } from "../../support/it.ts"

const plan = plannerOf({ ...Planning, ...Pooling })
const laws = Object.entries(planLaws).map(([number, { law, title }]) => ({ law, name: `${title} (${number})` }))

describe("a plan", () => {
  // One property, as making the cases takes longer than most laws.
  it.prop(
    laws.map(({ name }) => name).join("; "),
    [anyRoutingCase],
    ([routingCase]) => {
      for (const { law, name } of laws) {
        try {
          law(plan, routingCase)
        } catch (cause) {
          throw new Error(`not true of a plan: it ${name}`, { cause })
        }
      }
    },
    propertyRuns
  )
})
