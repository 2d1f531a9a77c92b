import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { Api } from "../../src/api/Api.ts"
import { version } from "../../src/wiring/OtlpSettings.ts"
import { releases } from "../support/process/releases.ts"

const read = (path: string) => readFileSync(join(import.meta.dirname, "../..", path), "utf8")
const found = (text: string, pattern: RegExp): ReadonlyArray<string | undefined> =>
  [...text.matchAll(pattern)].map(([, version]) => version)

describe("the released versions", () => {
  it("are those that have a date in the changelog, each with its package and its tag's commit", () => {
    assert.isAbove(releases.length, 0)
    assert.deepStrictEqual(found(read("CHANGELOG.md"), /^## \[(\d+\.\d+\.\d+)\] - \d{4}-/gm), releases)
    assert.deepStrictEqual(
      found(read("test/releases/README.md"), /^\| (\d+\.\d+\.\d+) +\| `v\1` +\| [0-9a-f]{7} /gm),
      [...releases].reverse()
    )
  })

  it("end with the newest of the changelog, which package.json, the program and its API show", () => {
    const [newest] = found(read("CHANGELOG.md"), /^## \[([^\]]+)\]/gm)
    assert.strictEqual(version, newest)
    assert.strictEqual(OpenApi.fromApi(Api).info.version, newest)
    for (const file of ["package.json", "package-lock.json"]) {
      assert.strictEqual(found(read(file), /"version": "([^"]+)"/g)[0], newest, file)
    }
  })
})
