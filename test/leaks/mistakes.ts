/** A command line and the environment of a process. */
export type CommandLine = readonly [args: ReadonlyArray<string>, variables: Record<string, string>]

/** What people get wrong on the command line and in the settings, with secrets in it. */
export const mistakes = (
  given: Readonly<Record<"argument" | "password" | "keyring" | "keyringFile" | "word", string>>
): ReadonlyArray<CommandLine> => {
  return [
    [["api-key", "revoke", given.argument, "--json"], {}],
    [["api-key", "revoke", "0".repeat(64), given.argument], {}],
    [["workspace", "list", "--account", given.argument], {}],
    [["serve", `--keyring=${given.argument}`], {}],
    [[given.argument], {}],
    [[given.word], {}],
    [["migrate"], { DATABASE_URL: `postgres://byok:${given.password}@db.example.org/byok` }],
    [["migrate"], { DATABASE_URL: `postgres://byok:${given.password}@127.0.0.1:${given.password}/byok` }],
    [["serve"], { BYOK_KEYRING: `kek:${given.keyring}` }],
    [["serve"], { BYOK_KEYRING_FILE: given.keyringFile }]
  ]
}
