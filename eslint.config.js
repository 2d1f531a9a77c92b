import tseslint from "typescript-eslint"

/** Imports point inwards: what each folder must not import. */
const forbidden = {
  domain: ["api", "service", "http", "crypto", "sql", "cli"],
  api: ["service", "http", "crypto", "sql", "cli"],
  service: ["api", "http", "crypto", "sql", "cli"],
  http: ["crypto", "sql", "cli"],
  crypto: ["api", "http", "sql", "cli"],
  sql: ["api", "http", "crypto", "cli"],
  cli: ["api", "http", "sql"]
}

/** @type {import("typescript-eslint").ConfigArray} */
const layering = Object.entries(forbidden).map(([folder, outer]) => ({
  files: [`src/${folder}/**/*.ts`],
  rules: {
    "no-restricted-imports": [
      "error",
      {
        patterns: [
          {
            regex: `^(\\.\\./)+(${outer.join("|")})/`,
            message: `src/${folder} must not import from ${outer.join(", ")}: imports point inwards.`
          },
          ...(folder === "cli"
            ? []
            : [
                {
                  regex: "^(\\.\\./)+[A-Z][A-Za-z]*\\.ts$",
                  message: "Only the wiring at the top may import the wiring."
                }
              ]),
          ...(folder === "domain" || folder === "api"
            ? [{ regex: "^node:|^@effect/", message: "The contract and its words run in any client: no Node, no I/O." }]
            : [])
        ]
      }
    ]
  }
}))

export default tseslint.config(
  { ignores: ["node_modules", "dist", "bench/results", "drill/results", ".stryker-tmp"] },
  ...tseslint.configs.strictTypeChecked.map((config) => ({ ...config, files: ["**/*.ts"] })),
  {
    files: ["**/*.ts"],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      "no-duplicate-imports": ["error", { allowSeparateTypeImports: false }],
      "@typescript-eslint/only-throw-error": "off",
      "@typescript-eslint/no-unnecessary-condition": "off",
      "@typescript-eslint/no-confusing-void-expression": "off",
      "@typescript-eslint/restrict-template-expressions": "off",
      "@typescript-eslint/require-await": "off",
      "@typescript-eslint/no-extraneous-class": "off",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }]
    }
  },
  ...layering
)
