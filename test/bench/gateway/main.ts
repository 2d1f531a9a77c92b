import { parseArgs } from "node:util"
import { onPostgres } from "../Bed.ts"
import { gatewayTableOf } from "../Report.ts"
import { builtIn } from "../Target.ts"
import { leanGateway, measureGateways, ownGateway } from "./Gateway.ts"

const { values } = parseArgs({
  options: {
    connections: { type: "string", default: "1,16,64" },
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "3" },
    /** Another checkout of the service, built, to be measured in the same turns. */
    beside: { type: "string" }
  }
})

const beside = values.beside === undefined ? [] : [builtIn(values.beside, "beside")]

onPostgres(async (postgres) => {
  const cells = await measureGateways(postgres, [...[builtIn("."), ...beside].map(ownGateway), leanGateway], {
    connections: values.connections.split(",").map(Number),
    rounds: Number(values.rounds),
    seconds: Number(values.seconds)
  })
  const pairs = [
    ["byok", "lean"],
    ["byok alone", "lean"],
    ["byok", "lean riding"],
    ...(beside.length === 0
      ? []
      : ([
          ["byok", "beside"],
          ["byok alone", "beside alone"]
        ] as const))
  ] as const
  for (const [one, other] of pairs) console.log(`\n${one} / ${other}:\n${gatewayTableOf(cells, one, other)}`)
})
