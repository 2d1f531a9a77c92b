import { execFile, type SpawnOptions } from "node:child_process"
import { randomBytes } from "node:crypto"
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { promisify } from "node:util"
import { makeOnce } from "../../support/process/makeOnce.ts"
import { isInstalled } from "../Load.ts"
import { isListening, startProcess, startServer } from "../Target.ts"

const suite = "bookworm"
const mirror = "http://deb.debian.org/debian"
const packages = ["barbican-api", "mariadb-server", "uwsgi", "uwsgi-plugin-python3"]
const directory = resolve("node_modules/.cache/rivals", `barbican-${suite}`)
const root = join(directory, "root")
const env = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND: "noninteractive" }

/** Runs a command in another root and new namespaces, so that its mounts and children end with it. */
const inNamespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--root"]
const inRoot = (...command: ReadonlyArray<string>) => [...inNamespaces, root, ...command]
/** A shell stays root beside a server that does not, or the server would outlive its namespaces. */
const serverInRoot = (...command: ReadonlyArray<string>) => inRoot("/bin/sh", "-c", '"$@"; exit', "sh", ...command)
const serving: SpawnOptions = { env, stdio: "ignore", killSignal: "SIGKILL" }

const complete = async ([command = "", ...given]: ReadonlyArray<string>, cwd: string) =>
  (await promisify(execFile)(command, given, { env, cwd, maxBuffer: 2 ** 26 })).stdout

/** Says why Barbican cannot be installed here; undefined if it can. */
const obstacle = (): string | undefined => {
  if (process.getuid?.() !== 0) return "its root directory needs the user root"
  if (!existsSync("/etc/debian_version")) return "it is installed from Debian packages"
  const missing = ["apt-get", "dpkg-deb", "unshare", "wget"].filter((program) => !isInstalled(program))
  return missing.length === 0 ? undefined : `programs are missing: ${missing.join(", ")}`
}

/** Installs the packages in a root of their own. */
const install = async (cwd: string) => {
  const uncached = ["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
  await complete(["apt-get", ...uncached, "download", "debootstrap"], cwd)
  const archive = readdirSync(cwd).find((name) => name.endsWith(".deb")) ?? ""
  await complete(["dpkg-deb", "--extract", archive, "debootstrap"], cwd)
  const scripts = `DEBOOTSTRAP_DIR=${join(cwd, "debootstrap/usr/share/debootstrap")}`
  const debootstrap = ["debootstrap/usr/sbin/debootstrap", "--variant=minbase", suite, "root", mirror]
  await complete(["unshare", "--mount", "env", scripts, ...debootstrap], cwd)
  // No package starts a service.
  writeFileSync(join(cwd, "root/usr/sbin/policy-rc.d"), "#!/bin/sh\nexit 101\n", { mode: 0o755 })
  const apt = [...inNamespaces, "root", "apt-get", "--yes", "--no-install-recommends"]
  await complete([...apt, "update"], cwd)
  await complete([...apt, "install", ...packages], cwd)
}

/**
 * Writes settings for an empty database, a key and requests without Keystone; everything else is as Debian has it.
 * uWSGI may tell the length of an answer, without which wrk counts every answer as failed too.
 */
const configure = () => {
  const login = "barbican:barbican@localhost/barbican?unix_socket=/tmp/mariadb.sock"
  const write = (path: string, text: string) => writeFileSync(join(root, path), text)
  write(
    "etc/barbican/barbican.conf",
    `[DEFAULT]
sql_connection = mysql+pymysql://${login}&charset=utf8
default_log_levels = barbican=WARNING
[oslo_policy]
policy_dirs = /etc/barbican/policy.d
[simple_crypto_plugin]
kek = ${randomBytes(32).toString("base64")}
`
  )
  const paste = readFileSync(join(root, "usr/share/barbican-common/barbican-api-paste.ini"), "utf8")
  write("etc/barbican/barbican-api-paste.ini", paste.replace("/v1: barbican-api-keystone", "/v1: barbican_api"))
  const uwsgi = readFileSync(join(root, "etc/barbican/barbican-api-uwsgi.ini"), "utf8")
  write("etc/barbican/rivals-uwsgi.ini", uwsgi.replace(/^rem-header.*$/m, ""))
  write(
    "tmp/init.sql",
    `DROP DATABASE IF EXISTS barbican;
CREATE DATABASE barbican CHARACTER SET utf8mb3;
GRANT ALL ON barbican.* TO barbican@localhost IDENTIFIED BY 'barbican';
`
  )
}

/** Starts Barbican and its MariaDB, which are installed once, with the processes and threads that Debian gives them. */
export const startBarbican = async () => {
  const reason = obstacle()
  if (reason !== undefined) throw new Error(reason)
  await makeOnce(directory, install)
  configure()
  const mariadb = ["--user=mysql", "--skip-networking", "--socket=/tmp/mariadb.sock", "--pid-file=/tmp/mariadb.pid"]
  const database = await startProcess(
    "MariaDB",
    serverInRoot("/usr/sbin/mariadbd", ...mariadb, "--init-file=/tmp/init.sql"),
    serving,
    () => isListening({ path: join(root, "tmp/mariadb.sock") })
  )
  await complete(inRoot("/usr/bin/barbican-db-manage", "upgrade"), root)
  const uwsgi = ["--ini", "/etc/barbican/rivals-uwsgi.ini", "--disable-logging"]
  const server = await startServer(
    "Barbican",
    (port) => serverInRoot("/usr/bin/uwsgi_python3", "--http-socket", `127.0.0.1:${port}`, ...uwsgi),
    serving
  )
  const versions = await complete(inRoot("dpkg-query", "--show", ...packages), root)
  return { database, server, versions: versions.trim().replaceAll(/\s+/g, " ") }
}
