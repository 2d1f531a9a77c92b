import { Context, Effect, Layer } from "effect"
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { generateKeyring } from "../src/crypto/keyring/Keyring.ts"
import { assert, layerLive } from "./support/it.ts"
import { freshDatabase } from "./support/database/freshDatabase.ts"
import { nowhere } from "./support/process/runByok.ts"
import { runNode, runProgram } from "./support/process/runNode.ts"
import { temporaryDirectory } from "./support/process/temporaryDirectory.ts"
import { TestService } from "./support/http/TestService.ts"

const project = join(import.meta.dirname, "..")
const tsc = join(project, "node_modules/typescript/bin/tsc")

/** The examples of the documents by topic, and the output of the first one. */
const examples = () => {
  const [readme = "", api = "", inProcess = ""] = ["README.md", "docs/api.md", "docs/in-process.md"].map((page) =>
    readFileSync(join(project, page), "utf8")
  )
  const codeAfter = (words: string, page: string) => page.split(words)[1]?.split("```ts\n")[1]?.split("```")[0] ?? ""
  const prints = /\nprints\n\n```\n(.*?)```/s.exec(inProcess)?.[1] ?? ""
  const sdk = codeAfter("official SDKs work unchanged", readme).replace(
    `"http://127.0.0.1:3000/`,
    "`${process.env.BYOK_URL}/"
  )
  const gateway = codeAfter("# In process", inProcess)
  return {
    prints,
    gateway,
    replaced:
      codeAfter("Every dependency is a port", inProcess) + gateway.replace("make(Byok.layer)", "make(replaced)"),
    client: codeAfter("derives a typed client", api),
    sdk: `import { OpenRouter } from "@openrouter/sdk"
      const managementKey = process.env["BYOK_MANAGEMENT_KEY"]
      const key = "sk-example-0123456789-AbCd"
      ${sdk.replace('/api/v1"', "/api/v1`")}`
  }
}

const ours = ["CHANGELOG.md", "README.md", "SECURITY.md", "deploy", "docs", "examples", "package.json"]

interface Manifest {
  readonly bin: { readonly byok: string }
  readonly dependencies: Readonly<Record<string, string>>
  readonly devDependencies: Readonly<Record<string, string>>
  readonly exports: Readonly<Record<string, string>>
  readonly name: string
  readonly optionalDependencies: Readonly<Record<string, string>>
  readonly version: string
}

/** A bill of materials in CycloneDX's form. */
interface Bill {
  readonly metadata: { readonly component: { readonly name: string; readonly version: string } }
  readonly components: ReadonlyArray<{ readonly group?: string; readonly name: string }>
}

const manifest = JSON.parse(readFileSync(join(project, "package.json"), "utf8")) as Manifest

const exported = Object.keys(manifest.exports).map((path) => `byok${path.slice(1)}`)

/** The modules of the package that the documents name, in code and in prose. */
const documented = () => {
  const pages = ["docs/in-process.md", "docs/api.md", "docs/keys.md", "docs/settings.md"].map((page) =>
    readFileSync(join(project, page), "utf8")
  )
  const names = pages.flatMap((page) => page.match(/(?<=")byok(?=")|(?<=["`])byok\/[\w/]+(?=["`])/g) ?? [])
  return [...new Set(names)].sort()
}

/** Paths that differ in case only. */
const sameButForCase = (paths: ReadonlyArray<string>) =>
  Object.values(Object.groupBy(paths, (path) => path.toLowerCase())).filter((group = []) => group.length > 1)

const succeeds = (finished: { readonly code: number | null; readonly stdout: string; readonly stderr: string }) => {
  assert.strictEqual(finished.code, 0, finished.stdout + finished.stderr)
  return finished
}

/** A foreign project that has installed the result of `npm pack`, with the same dependencies. */
class Installed extends Context.Service<Installed, { readonly root: string; readonly files: ReadonlyArray<string> }>()(
  "byok/test/Installed"
) {}

const InstalledLive = Layer.effect(
  Installed,
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const build = join(directory, "build")
    mkdirSync(build)
    const built = ["package-lock.json", "tsconfig.json", "tsconfig.build.json", "rolldown.config.js", "src"]
    for (const file of [...ours, ...built, "test/vectors"]) {
      cpSync(join(project, file), join(build, file), { recursive: true })
    }
    symlinkSync(join(project, "node_modules"), join(build, "node_modules"))
    succeeds(
      yield* runProgram("npm", ["pack", "--silent", "--offline"], { cwd: build, variables: { HOME: directory } })
    )

    const root = join(directory, "gateway")
    const modules = join(root, "node_modules")
    mkdirSync(join(modules, ".bin"), { recursive: true })
    const archive = readdirSync(build).find((name) => name.endsWith(".tgz")) ?? ""
    succeeds(yield* runProgram("tar", ["-xzf", join(build, archive), "-C", modules]))
    const files = readdirSync(join(modules, "package"), { recursive: true, encoding: "utf8" })
    cpSync(join(modules, "package"), join(modules, "byok"), { recursive: true })
    for (const name of readdirSync(join(project, "node_modules"))) {
      const path = join(modules, name)
      if (!name.startsWith(".") && !existsSync(path)) symlinkSync(join(project, "node_modules", name), path)
    }
    const { client, gateway, replaced, sdk } = examples()
    for (const [name, code] of Object.entries({ client, gateway, replaced, sdk })) {
      assert.isNotEmpty(code, name)
      writeFileSync(join(root, `${name}.ts`), code)
    }
    writeFileSync(join(root, "package.json"), JSON.stringify({ name: "gateway", type: "module", private: true }))
    return { root, files }
  })
)

layerLive(Layer.merge(InstalledLive, TestService.layer))("the published package", (it) => {
  it.effect("the package contains only dist, docs, deploy, examples, package.json and three .md files", function* () {
    const { files } = yield* Installed
    assert.sameMembers(
      files.filter((file) => !file.includes("/")),
      [...ours, "dist"]
    )
    const program = ["dist/bin.js", "dist/main.js", "dist/LICENCES.txt"]
    assert.includeMembers([...files], [...program, "dist/wiring/Byok.js", "dist/contract/TenantsApi.d.ts"])
    assert.includeMembers(
      [...files],
      ["index.html", "hpke.js", "preact.js", "label.js", "keyFault.js", "simple.css"].map((file) => `dist/page/${file}`)
    )
    assert.include(files, "examples/gateway.py")
    assert.notInclude(files, "examples/gateway.ts", "it imports the sources")
  })

  it.effect("the package's bill of materials lists every runtime and no development dependency", function* () {
    const { root } = yield* Installed
    const bill = JSON.parse(readFileSync(join(root, "node_modules/byok/dist/sbom.cdx.json"), "utf8")) as Bill
    assert.deepInclude(bill.metadata.component, { name: manifest.name, version: manifest.version })
    const { dependencies, devDependencies, optionalDependencies } = manifest
    const names = bill.components.map(({ group, name }) => (group === undefined ? name : `${group}/${name}`))
    assert.includeMembers(names, Object.keys({ ...dependencies, ...optionalDependencies }))
    assert.notIncludeMembers(names, Object.keys(devDependencies))
  })

  it.effect("the package contains no two paths that differ only in case", function* () {
    const { files } = yield* Installed
    assert.isNotEmpty(files)
    assert.deepStrictEqual(sameButForCase(files), [])
    assert.deepStrictEqual(
      sameButForCase([...files, "dist/Main.js"]),
      [["dist/main.js", "dist/Main.js"]],
      "a planted one is found"
    )
  })

  it.effect("the package has a type declaration file beside each exported module", function* () {
    const { files } = yield* Installed
    const modules = Object.values(manifest.exports).map((path) => path.replace("./", ""))
    assert.includeMembers(
      [...files],
      modules.flatMap((path) => [path, path.replace(/\.js$/, ".d.ts")])
    )
  })

  it.effect("the installed program byok prints its version, even without its dependencies", function* () {
    const { root } = yield* Installed
    const { bin, version } = manifest
    const program = join(root, "node_modules/.bin/byok")
    symlinkSync(join(root, "node_modules/byok", bin.byok), program)
    chmodSync(program, 0o755)
    const { stdout } = succeeds(yield* runProgram(program, ["--version"], { cwd: root }))
    assert.strictEqual(stdout, `byok v${version}\n`)
    const alone = yield* temporaryDirectory
    cpSync(join(root, "node_modules/byok/dist"), alone, { recursive: true })
    writeFileSync(join(alone, "package.json"), `{ "type": "module" }`)
    const { stdout: again } = succeeds(yield* runNode([join(alone, "bin.js"), "--version"], { cwd: alone }))
    assert.strictEqual(again, stdout, "without its dependencies beside it")
  })

  it.effect("the package exports every module that the documents name", function* () {
    const { root } = yield* Installed
    assert.includeMembers(documented(), ["byok", "byok/api", "byok/port/Cipher", "byok/service/Credentials"])
    assert.includeMembers(exported, documented())
    const names = documented()
      .map((name) => `"${name}"`)
      .join()
    const program = `for (const name of [${names}]) console.log(name, Object.keys(await import(name)).sort().join())`
    const { stdout } = succeeds(yield* runNode(["--input-type=module", "-e", program], { cwd: root }))
    const found = Object.fromEntries(
      Array.from(stdout.matchAll(/^(.*) (.*)$/gm), ([, name = "", names]) => [name, names])
    )
    assert.deepInclude(found, {
      byok: "layer,layerWith",
      "byok/api": "Api",
      "byok/port/Cipher": "AuthenticationFailed,Cipher,SealingRefused,UnknownKeyId,UnsupportedFormat",
      "byok/port/Credentials": "Credentials,OrderRefused,StoredKeyUnusable",
      "byok/service/Credentials": "layer,layerWithoutKeyring,make",
      "byok/service/routing/Router": "Router"
    })
  })

  it.effect("importing a module that the package does not export fails", function* () {
    const { root } = yield* Installed
    const names = ["byok/Byok", "byok/api/Api", "byok/crypto/keyring/Keyring", "byok/package.json"]
    const program = `for (const name of ${JSON.stringify([...names, "byok/dist/wiring/Byok.js"])}) {
          console.log(await import(name).then(() => name, ({ code }) => code))
        }`
    const { stdout } = succeeds(yield* runNode(["--input-type=module", "-e", program], { cwd: root }))
    assert.strictEqual(stdout, "ERR_PACKAGE_PATH_NOT_EXPORTED\n".repeat(5))
  })

  it.effect("the documents' in-process example runs, and prints what they say", function* () {
    const { root } = yield* Installed
    const { prints } = examples()
    const DATABASE_URL = yield* freshDatabase
    const variables = { ...nowhere, DATABASE_URL, BYOK_KEYRING: generateKeyring(new Date()) }
    const { stderr, stdout } = succeeds(yield* runNode(["gateway.ts"], { cwd: root, variables }))
    assert.deepStrictEqual({ stdout, stderr }, { stdout: prints, stderr: "" })
    assert.isNotEmpty(prints)
  })

  it.effect("the documents' example of replacing a port runs, and the service uses the replacement", function* () {
    const { root } = yield* Installed
    const variables = { ...nowhere, DATABASE_URL: yield* freshDatabase, BYOK_KEYRING: generateKeyring(new Date()) }
    const { stdout } = succeeds(yield* runNode(["replaced.ts"], { cwd: root, variables }))
    assert.strictEqual(stdout, `sealed elsewhere\n${examples().prints}`)
  })

  it.effect("the documents' example of the typed HTTP client reaches a service", function* () {
    const { root } = yield* Installed
    const { url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const variables = { ...nowhere, BYOK_URL: url, BYOK_MANAGEMENT_KEY: management_key }
    const { stdout } = succeeds(yield* runNode(["client.ts"], { cwd: root, variables }))
    assert.match(stdout, /^sk-\.\.\.6789 [0-9a-f-]{36}\n$/)
  })

  it.effect("the README's example of an official SDK reaches a service", function* () {
    const { root } = yield* Installed
    const { url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const variables = { ...nowhere, BYOK_URL: url, BYOK_MANAGEMENT_KEY: management_key }
    const { stdout } = succeeds(yield* runNode(["sdk.ts"], { cwd: root, variables }))
    assert.strictEqual(stdout, "sk-...AbCd\n")
  })

  it.effect("the package's types accept the documents' examples and reject a wrong use (control)", function* () {
    const { root } = yield* Installed
    const wrong = [
      `import { Credentials } from "byok/port/Credentials"`,
      `export const wrong: number = Credentials`,
      `export * from "byok/sql/rows"`
    ].join("\n")
    const all = exported.map((name, index) => `export * as module${index} from "${name}"`).join("\n")
    const options = {
      strict: true,
      skipLibCheck: true,
      noEmit: true,
      module: "NodeNext",
      target: "ES2024",
      types: ["node"]
    }
    writeFileSync(join(root, "all.ts"), all)
    writeFileSync(join(root, "wrong.ts"), wrong)
    writeFileSync(
      join(root, "tsconfig.json"),
      JSON.stringify({
        compilerOptions: options,
        files: ["all.ts", "client.ts", "gateway.ts", "replaced.ts", "wrong.ts"]
      })
    )
    const { code, stdout } = yield* runNode([tsc, "-p", root], { cwd: root })
    assert.strictEqual(code, 2)
    assert.match(stdout, /^wrong\.ts\(2,14\): error TS2322: .*\nwrong\.ts\(3,15\): error TS2307: .*\n$/)
  })
})
