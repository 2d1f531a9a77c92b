import { parseArgs } from "node:util"
import { onPostgres } from "../Bed.ts"
import { gatewayTableOf, tableOf } from "../Report.ts"
import { builtIn } from "../Target.ts"
import { allocationOf, leanGateway, measureGateways, ownGateway, rungs } from "./Gateway.ts"

const { values } = parseArgs({
  options: {
    connections: { type: "string", default: "1,16,64" },
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "3" },
    /** Another checkout of the service, built, to be measured in the same turns. */
    beside: { type: "string" },
    /** Measures the layers of a request instead, one by one. */
    layers: { type: "boolean", default: false }
  }
})

const beside = values.beside === undefined ? [] : [builtIn(values.beside, "beside")]

onPostgres(async (postgres) => {
  const services = [builtIn("."), ...beside].map(ownGateway)
  const measured = values.layers ? [...rungs, ...services] : services
  const cells = await measureGateways(postgres, [...measured, leanGateway], {
    connections: values.connections.split(",").map(Number),
    rounds: Number(values.rounds),
    seconds: Number(values.seconds)
  })
  if (values.layers) return console.log(tableOf(cells, "lean riding"))
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
  const kilobytes = (await allocationOf(postgres, builtIn("."), Number(values.seconds))) / 1000
  console.log(`Allocated for a routed request, at 64 connections: ${kilobytes.toFixed(0)} KB`)
  for (const [one, other] of pairs) console.log(`\n${one} / ${other}:\n${gatewayTableOf(cells, one, other)}`)
})
