import { send } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

layerLive(TestService.layer)("the documentation page", (it) => {
  it.effect("/docs is compressed and cacheable, and answers 304 to a known ETag (F17)", function* () {
    const { url } = yield* TestService
    const { headers, status } = yield* send(url, { path: "/docs", method: "HEAD" })
    assert.strictEqual(status, 200)
    assert.strictEqual(headers["content-type"], "text/html; charset=utf-8")
    assert.strictEqual(headers["content-encoding"], "gzip")
    assert.isBelow(Number(headers["content-length"]), 1_000_000)
    assert.strictEqual(headers["cache-control"], "public, max-age=300")
    const known = [["If-None-Match", headers["etag"] ?? ""]] as const
    assert.strictEqual((yield* send(url, { path: "/docs", method: "HEAD", headers: known })).status, 304)
  })

  it.effect(
    "the Content-Security-Policy of /docs forbids foreign scripts, foreign requests and framing (F17)",
    function* () {
      const { url } = yield* TestService
      const { headers } = yield* send(url, { path: "/docs", method: "HEAD" })
      const policy = headers["content-security-policy"] ?? ""
      assert.match(policy, /; script-src( 'sha256-[\w+/]{43}='){2}; style-src 'unsafe-inline'; connect-src 'self'; /)
      assert.match(policy, /^default-src 'none'; .*base-uri 'none'; form-action 'none'; frame-ancestors 'none'$/)
      assert.notMatch(policy, /\*|http|unsafe-eval/)
      assert.deepStrictEqual(
        [headers["x-content-type-options"], headers["referrer-policy"]],
        ["nosniff", "no-referrer"]
      )
    }
  )

  it.effect("/ redirects to /docs (D10)", function* () {
    const { url } = yield* TestService
    const { headers, status } = yield* send(url, { path: "/" })
    assert.deepStrictEqual([status, headers["location"]], [302, "/docs"])
  })
})
