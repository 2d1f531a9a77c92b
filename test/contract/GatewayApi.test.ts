import { OpenApi } from "effect/http-api"
import { GatewayApi } from "../../src/contract/GatewayApi.ts"
import { assert, it } from "../support/it.ts"

it("the contract of gateways declares the parameters of every path", () => {
  interface Declaring {
    readonly parameters?: ReadonlyArray<{ readonly in: string; readonly name: string }>
  }
  const { paths } = OpenApi.fromApi(GatewayApi)
  const undeclared = Object.entries(paths).flatMap(([path, item]) => {
    const { parameters = [], ...operations } = item as Declaring & Record<string, Declaring>
    const templates = Array.from(path.matchAll(/\{(\w+)\}|:(\w+)/g), ([text, name]) => name ?? text)
    return Object.values(operations).flatMap((operation) => {
      const declared = [...parameters, ...(operation.parameters ?? [])].flatMap((one) =>
        one.in === "path" ? [one.name] : []
      )
      return templates.filter((name) => !declared.includes(name)).map((name) => `${path}: ${name}`)
    })
  })
  assert.deepStrictEqual(undeclared, [])
})
