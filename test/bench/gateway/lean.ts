import { createDecipheriv, createSecretKey, randomUUID } from "node:crypto"
import Fastify from "fastify"
import { Pool } from "pg"

const { DATABASE_URL, GATEWAY_SOCKET, LEAN_KEY } = process.env
const pool = new Pool({ connectionString: DATABASE_URL, max: 10 })
const secret = createSecretKey(LEAN_KEY ?? "", "base64")

interface Row {
  readonly id: string
  readonly label: string
  readonly sealed: Buffer
}

const findKeys = {
  name: "lean_keys",
  text: `SELECT id, label, sealed FROM lean_keys
    WHERE account_id = $1 AND provider = $2 AND NOT disabled ORDER BY sort_order`
}

const open = ({ id, sealed }: Row) =>
  createDecipheriv("aes-256-gcm", secret, sealed.subarray(0, 12), { authTagLength: 16 })
    .setAAD(Buffer.from(id))
    .setAuthTag(sealed.subarray(-16))
    .update(sealed.subarray(12, -16))
    .toString()

const text = { type: "string" }
const body = {
  type: "object",
  required: ["account_id", "model", "targets"],
  properties: {
    account_id: { type: "string", format: "uuid" },
    model: text,
    targets: { type: "array", items: { type: "object", required: ["provider"], properties: { provider: text } } },
    reports: { type: "array", maxItems: 100, items: { type: "object", required: ["attempt"] } }
  }
}
const attempt = {
  type: "object",
  nullable: true,
  properties: {
    attempt: text,
    step: text,
    provider: text,
    credential_id: text,
    label: text,
    key: text
  }
}
const answerOf = (properties: object) => ({
  type: "object",
  properties: { data: { type: "object", properties: { ...properties, next: attempt } } }
})

interface Asked {
  readonly account_id: string
  readonly targets: ReadonlyArray<{ readonly provider: string }>
  readonly reports?: ReadonlyArray<object>
}

/**
 * A user's own shortcut: one SELECT of an account's enabled keys in their order, one AES-GCM under one key, and JSON. No
 * policies, workspaces, parkings or trials. Results of attempts are not stored.
 */
const app = Fastify({ bodyLimit: 256 * 1024, logger: false })
const outcomes = { type: "array", items: { type: "object", properties: { outcome: text } } }
app.post<{ Body: Asked }>(
  "/v1/attempts",
  { schema: { body, response: { 200: answerOf({ reports: outcomes }) } } },
  async ({ body: { account_id, reports, targets } }, reply) => {
    const provider = targets[0]?.provider
    const [first] = (await pool.query<Row>({ ...findKeys, values: [account_id, provider] })).rows
    const next = first && { attempt: randomUUID(), step: "own", provider, credential_id: first.id, label: first.label }
    const taken = reports?.map(() => ({ outcome: "succeeded" }))
    return reply.send({
      data: { next: first === undefined ? null : { ...next, key: open(first) }, ...(taken && { reports: taken }) }
    })
  }
)
app.post<{ Body: { readonly reports: ReadonlyArray<object> } }>(
  "/v1/reports",
  {
    schema: {
      body: { type: "object", properties: { reports: body.properties.reports } },
      response: { 200: answerOf({ reports: outcomes }) }
    }
  },
  ({ body: { reports } }) => ({ data: { reports: reports.map(() => ({ outcome: "succeeded" })) } })
)
await app.listen({ path: GATEWAY_SOCKET ?? "" })
