#!/usr/bin/env node
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)

if (major > 22 || (major === 22 && minor >= 19)) {
  // Until it listens to them, and while it stops, the service is not ended by signals to read its keyring again.
  if (process.argv.includes("serve")) process.on("SIGHUP", () => undefined)
  await import("./main.ts")
} else {
  console.error(`byok needs Node.js 22.19 or later; this is ${process.versions.node}.`)
  process.exitCode = 1
}
