import { Effect, Redacted } from "effect"
import { createHash, createHmac, pbkdf2Sync, randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { createPrivateFile, readPrivateText } from "../../runtime/SecretFile.ts"
import { EmbeddedPostgresError, type PostgresBinaries, run } from "./PostgresBinaries.ts"

/** The file in BYOK_DATA_DIR with the password of PostgreSQL's only role. PostgreSQL's user cannot read it. */
const fileName = "postgres.password"

/** Reads the password of a data directory; generates it first if there is none. */
export const openPassword = (root: string) => {
  const file = join(root, fileName)
  // Another process may create the file meanwhile.
  const create = Effect.suspend(() => createPrivateFile(file, randomBytes(32).toString("base64url"))).pipe(
    Effect.catch((error) => (existsSync(file) ? Effect.void : Effect.fail(error)))
  )
  return Effect.suspend(() => (existsSync(file) ? Effect.void : create)).pipe(
    Effect.andThen(readPrivateText(file)),
    Effect.map((text) => Redacted.make(text.trim())),
    Effect.mapError(({ message }) => EmbeddedPostgresError.of(`BYOK_DATA_DIR/${fileName}: ${message}.`))
  )
}

/** What PostgreSQL stores of a password to verify it (RFC 5803): not enough to log in. */
const verifierOf = (password: Redacted.Redacted) => {
  const salt = randomBytes(16)
  const salted = pbkdf2Sync(Redacted.value(password), salt, 4096, 32, "sha256")
  const hmac = (text: string) => createHmac("sha256", salted).update(text).digest()
  const storedKey = createHash("sha256").update(hmac("Client Key")).digest("base64")
  return `SCRAM-SHA-256$4096:${salt.toString("base64")}$${storedKey}:${hmac("Server Key").toString("base64")}`
}

/** Lets in only the role `byok`, over the socket, with its password. */
const access = "local all byok scram-sha-256"

const script = `echo '${access}' > pg_hba.conf &&
  exec "$1" --single -D . -c exit_on_error=on -c log_min_error_statement=panic postgres`

/** Makes PostgreSQL ask for this password from its next start on. Returns a failing exit code while it runs. */
export const requirePassword = (cluster: string, postgres: PostgresBinaries["postgres"], password: Redacted.Redacted) =>
  Effect.suspend(() =>
    run("/bin/sh", ["-c", script, "sh", postgres], {
      cwd: cluster,
      input: `ALTER ROLE byok PASSWORD '${verifierOf(password)}'\n`
    })
  )
