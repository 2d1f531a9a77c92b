import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { runNode } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const root = join(import.meta.dirname, "../..")

/** The client of docs/api.md, on the sources instead of the package. */
const example = () => {
  const [, code = ""] = /## Typed client.*?```ts\n(.*?)```/s.exec(readFileSync(join(root, "docs/api.md"), "utf8")) ?? []
  const source = (path: string) => `"${join(root, "src", path)}.ts"`
  return code
    .replaceAll(/"byok\/([^"]+)"/g, (_, path: string) =>
      source(path === "api" ? "contract/TenantsApi" : path.replace(/^api/, "contract"))
    )
    .replaceAll(/"(effect[^"]*)"/g, (_, name: string) => `"${import.meta.resolve(name)}"`)
}

describe("the client of docs/api.md without the service", () => {
  it.live.each([
    ["prints no key", (code: string) => code, false],
    [
      "prints keys unless it maps the error (control)",
      (code: string) => code.replace("(withoutKeys,", "(program,"),
      true
    ]
  ] as const)("fails with an error that %s (C1)", function* ([, change, printed]) {
    const file = join(yield* temporaryDirectory, "client.ts")
    writeFileSync(file, change(example()))
    const variables = { BYOK_URL: "http://127.0.0.1:1", BYOK_MANAGEMENT_KEY: "canary-canary" }
    const { code, stderr, stdout } = yield* runNode([file], { variables })
    assert.notStrictEqual(code, 0)
    assert.include(stderr, "TransportError")
    const found = ["canary-canary", "sk-0123456789-0123456789"].map((key) => (stdout + stderr).includes(key))
    assert.deepStrictEqual(found, [printed, printed])
  })
})
