import tseslint from "typescript-eslint"

/**
 * Imports point inwards: the rooms that the files of a room may import. Only `wiring` and `Byok` know nearly all.
 *
 * @type {Readonly<Record<string, ReadonlyArray<string>>>}
 */
const mayImport = {
  domain: [],
  api: ["domain"],
  port: ["domain"],
  service: ["domain", "port"],
  telemetry: ["domain", "port"],
  http: ["domain", "api", "port"],
  management: ["domain", "api", "port", "telemetry", "http"],
  gateway: ["domain", "api", "port", "service", "http"],
  links: ["domain", "api", "port", "service", "http"],
  crypto: ["domain", "port"],
  sql: ["domain", "port"],
  wiring: ["domain", "port", "service", "telemetry", "crypto", "sql"],
  serve: ["domain", "api", "port", "service", "telemetry", "http", "management", "gateway", "links", "wiring"],
  cli: ["domain", "port", "service", "wiring", "serve"]
}
const mayImportTop = ["serve", "cli"]
const runsInAnyClient = ["domain", "api"]
/** Folders of a room that stand on the rest of it: its top must not import them. */
const onTop = [["domain", "routing"]]

/** @type {import("typescript-eslint").ConfigArray} */
const layering = Object.entries(mayImport).flatMap(([room, inner]) => {
  const outer = Object.keys(mayImport).filter((other) => other !== room && !inner.includes(other))
  // From the files at each depth below a room, `up` leads back to `src`.
  return [
    { files: `src/${room}/*.ts`, up: "\\.\\./", parts: onTop.filter(([on]) => on === room).map(([, part]) => part) },
    { files: `src/${room}/*/*.ts`, up: "\\.\\./\\.\\./", parts: [] }
  ].map(({ files, parts, up }) => ({
    files: [files],
    rules: {
      "no-restricted-imports": [
        "error",
        {
          patterns: [
            {
              regex: `^${up}(${outer.join("|")})/`,
              message: `src/${room} must not import ${outer.join(", ")}: imports point inwards.`
            },
            ...parts.map((part) => ({
              regex: `^\\./${part}/`,
              message: `The top of src/${room} must not import ${part}, which stands on it.`
            })),
            ...(mayImportTop.includes(room)
              ? []
              : [{ regex: `^${up}[A-Za-z]+\\.[jt]s$`, message: "Only serve and cli may import the top of src." }]),
            ...(runsInAnyClient.includes(room)
              ? [
                  {
                    regex: "^node:|^@effect/",
                    message: "The contract and its words run in any client: no Node, no I/O."
                  }
                ]
              : [])
          ]
        }
      ]
    }
  }))
})

/**
 * `connection` knows nothing of the tables.
 *
 * @type {import("typescript-eslint").ConfigArray[number]}
 */
const connection = {
  files: ["src/sql/connection/*.ts"],
  rules: {
    "no-restricted-syntax": [
      "error",
      {
        selector: "ImportDeclaration[source.value=/^\\.\\.\\/(?!\\.\\.\\/)/]",
        message: "src/sql/connection must not import the rest of src/sql."
      }
    ]
  }
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
  ...layering,
  connection
)
