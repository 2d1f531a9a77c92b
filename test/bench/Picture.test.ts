import type { Cell, Round } from "./Cell.ts"
import { pictureOf } from "./Picture.ts"
import { assert, describe, it } from "../support/it.ts"

const round = (rate: number): Round => ({
  rate,
  p50: 1,
  p99: 2,
  requests: 1,
  seconds: 1,
  errors: 0,
  nodeCpu: 1,
  postgresCpu: 1,
  memory: 1
})

const cell = (rounds: Cell["rounds"]): Cell => ({ operation: "get", connections: 64, rounds })

const widthsOf = (svg: string, tone: string) =>
  Array.from(
    svg.matchAll(new RegExp(`class="${tone}"[^>]* width="([\\d.]+)" height="11" rx="2"/>\\n<text[^>]*value`, "g"))
  ).map(([, width]) => Number(width))

describe("the chart of the benchmark", () => {
  it("draws a bar for each contender whose length is proportional to its median", () => {
    const svg = pictureOf([cell({ byok: [100, 300, 200].map(round), fastify: [round(50)], lean: [round(100)] })])
    const [byok = 0] = widthsOf(svg, "service")
    const [fastify = 0] = widthsOf(svg, "peer")
    assert.closeTo(byok / fastify, 4, 0.01)
    assert.include(svg, ">200</text>")
  })

  it("leaves out a contender that was not measured", () => {
    const svg = pictureOf([cell({ byok: [round(1)] })])
    assert.deepStrictEqual([widthsOf(svg, "service").length, widthsOf(svg, "peer").length], [2, 0])
  })
})
