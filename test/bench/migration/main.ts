import { parseArgs } from "node:util"
import { upgradeUnderLoad } from "../../support/database/upgradeUnderLoad.ts"
import { onPostgres } from "../Bed.ts"

const { values } = parseArgs({ options: { rows: { type: "string", default: "1000000" } } })
const each = 100

onPostgres(async ({ socket }) => {
  const url = `postgres://byok@localhost/postgres?host=${encodeURIComponent(socket)}`
  const found = await upgradeUnderLoad(url, Number(values.rows) / each, each)
  console.log(`${found.migrations.join(", ")} in ${found.seconds.toFixed(1)} s beside ${found.statements} statements`)
  console.log(
    `statements that failed: ${found.failed.length}${found.failed
      .slice(0, 3)
      .map((text) => `, ${text}`)
      .join("")}`
  )
  console.log(
    `longest statement ${found.longestStatement.toFixed(0)} ms, longest wait for a lock ${found.longestWait.toFixed(0)} ms`
  )
  console.log(`rows kept: ${found.kept} of ${found.rows}; creates that are stored: ${found.stored} of ${found.created}`)
  if (found.failed.length > 0 || found.kept !== found.rows || found.stored !== found.created) process.exitCode = 1
})
