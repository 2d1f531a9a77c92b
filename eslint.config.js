import { join, relative } from "node:path"
import tseslint from "typescript-eslint"

/**
 * Imports point inwards: for each folder of `src`, the folders that its files may import beside their own; `sql/*` are those
 * in `sql`. What is not listed is refused.
 *
 * @type {Readonly<Record<string, ReadonlyArray<string>>>}
 */
const mayImport = {
  ".": ["cli", "wiring"],
  domain: [],
  "domain/routing/providerErrors": ["domain"],
  "domain/routing": ["domain", "domain/routing/providerErrors"],
  contract: ["domain", "domain/routing", "domain/routing/providerErrors"],
  port: ["domain", "domain/routing"],
  runtime: ["domain", "port"],
  "service/audit": ["domain", "port", "runtime"],
  "service/keyring": ["domain", "port", "runtime"],
  "service/tokens": ["domain", "domain/routing", "port", "runtime"],
  "service/credentials": ["domain", "domain/routing", "port", "runtime", "service/tokens"],
  "service/accounts": ["domain", "port", "runtime", "service/credentials"],
  "service/links": ["domain", "port", "runtime", "service/accounts", "service/credentials"],
  "service/routing": ["domain", "domain/routing", "port", "runtime", "service/credentials", "service/tokens"],
  telemetry: ["domain", "port", "runtime"],
  http: ["domain", "domain/routing", "contract", "port", "runtime"],
  management: ["domain", "contract", "port", "runtime", "http"],
  gateway: ["domain", "domain/routing", "contract", "port", "runtime", "service/*", "http"],
  forward: ["domain", "domain/routing", "contract", "port", "runtime", "service/routing", "http"],
  links: ["domain", "contract", "port", "runtime", "service/accounts", "service/links", "http"],
  "links/page": ["domain"],
  crypto: ["domain", "port", "runtime", "crypto/keyring"],
  "crypto/keyring": ["domain", "port", "runtime"],
  "sql/connection": ["domain", "port", "runtime"],
  "sql/schema": ["domain", "port", "runtime", "sql/connection"],
  "sql/audit": ["domain", "port", "runtime", "sql/connection"],
  "sql/rows": ["domain", "port", "runtime", "sql/connection"],
  "sql/accounts": ["domain", "port", "runtime", "sql/connection", "sql/schema", "sql/audit", "sql/rows"],
  "sql/links": ["domain", "port", "runtime", "sql/connection", "sql/audit", "sql/rows"],
  "sql/keyring": ["domain", "port", "runtime", "sql/connection", "sql/audit", "sql/rows"],
  "sql/credentials": ["domain", "domain/routing", "port", "runtime", "sql/connection", "sql/audit", "sql/rows"],
  "sql/routing": ["domain", "domain/routing", "port", "runtime", "sql/connection", "sql/audit", "sql/rows"],
  "sql/embedded": ["domain", "port", "runtime", "sql/connection"],
  wiring: ["domain", "port", "runtime", "service/*", "telemetry", "crypto", "crypto/*", "sql/*"],
  serve: [
    "domain",
    "contract",
    "port",
    "runtime",
    "service/*",
    "http",
    "management",
    "gateway",
    "forward",
    "links",
    "wiring"
  ],
  cli: ["domain", "domain/routing", "port", "runtime", "service/*", "wiring", "serve"]
}
const runsInAnyClient = /^(domain|contract)/

const rooms = Object.keys(mayImport)
const unlisted = "src/**/*.{ts,js}"

/** How an import in one room begins that leads to another. */
const leadingTo = (/** @type {string} */ room, /** @type {string} */ other) => {
  const path = relative(room, other)
  return path.startsWith("..") ? `${path}/` : `./${path === "" ? "" : `${path}/`}`
}

/** @type {import("typescript-eslint").ConfigArray} */
const layering = [unlisted, ...rooms].map((room) => {
  const inner = (mayImport[room] ?? []).flatMap((one) =>
    one.endsWith("/*") ? rooms.filter((other) => other.startsWith(one.slice(0, -1))) : [one]
  )
  const allowed =
    room === unlisted ? [] : [room, ...inner].map((other) => leadingTo(room, other).replaceAll(".", "\\."))
  const patterns = [
    {
      regex: `^(?!(${allowed.join("|")})[^/]+$)\\.`,
      message: "The table of rooms in eslint.config.js does not allow this import: imports point inwards."
    },
    ...(runsInAnyClient.test(room)
      ? [{ regex: "^node:|^@effect/", message: "It runs in any client: no Node, no I/O." }]
      : [])
  ]
  const files = [room === unlisted ? unlisted : join("src", room, "*.{ts,js}")]
  return { files, rules: { "no-restricted-imports": ["error", { patterns }] } }
})

/**
 * A service is required. Where the context of a request lacks a `Reference`, its default is used in silence; so the only
 * default is `undefined`, for what belongs to one request and is absent outside it.
 */
const noDefaults = {
  selector:
    "CallExpression[callee.object.name='Context'][callee.property.name='Reference']:not(:has(Property[key.name='defaultValue'] > ArrowFunctionExpression > Identifier.body[name='undefined']))",
  message: "Use Context.Service, and read it when a service is made: a default would be served in silence."
}

export default tseslint.config(
  {
    ignores: [
      "node_modules",
      "dist",
      "test/bench/results",
      "test/drill/results",
      ".stryker-tmp",
      "src/links/page/*.d.ts"
    ]
  },
  ...tseslint.configs.strictTypeChecked.map((config) => ({ ...config, files: ["**/*.ts"] })),
  {
    files: ["**/*.ts"],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      "no-duplicate-imports": ["error", { allowSeparateTypeImports: false }],
      // erasableSyntaxOnly allows no enums.
      "@typescript-eslint/no-unsafe-enum-assignment": "off",
      "@typescript-eslint/only-throw-error": "off",
      "@typescript-eslint/no-unnecessary-condition": "off",
      "@typescript-eslint/no-confusing-void-expression": "off",
      "@typescript-eslint/restrict-template-expressions": "off",
      "@typescript-eslint/require-await": "off",
      "@typescript-eslint/no-extraneous-class": "off",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }]
    }
  },
  {
    files: ["test/**/*.ts"],
    rules: {
      "no-restricted-syntax": [
        "error",
        {
          selector:
            ":matches(CallExpression[callee.name='it'], CallExpression[callee.object.name='it'][callee.property.name=/^(each|only|prop|skip|skipIf)$/]) > FunctionExpression[generator=true]",
          message: "Only it.effect and it.live run a generator."
        }
      ]
    }
  },
  {
    files: ["src/**/*.ts"],
    // The streams of the process, which tests replace. No request reads them.
    ignores: ["src/cli/Output.ts", "src/wiring/StandardError.ts"],
    rules: { "no-restricted-syntax": ["error", noDefaults] }
  },
  {
    files: ["src/{forward,gateway,http,links,runtime,service}/**/*.ts"],
    rules: {
      "no-restricted-syntax": [
        "error",
        noDefaults,
        {
          selector:
            "ArrowFunctionExpression > CallExpression[callee.object.name='Effect'][callee.property.name='gen'], :matches(ArrowFunctionExpression, ReturnStatement) > CallExpression > MemberExpression > CallExpression[callee.object.name='Effect'][callee.property.name='gen'], ReturnStatement > CallExpression[callee.object.name='Effect'][callee.property.name='gen']",
          message:
            "Use Effect.fnUntraced: all that a generator made per call captures lives until the next full garbage collection."
        }
      ]
    }
  },
  ...layering
)
