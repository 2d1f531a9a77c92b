import { Schema } from "effect"
import { fixedMessage } from "../domain/Errors.ts"

/** 405, sent with `Allow` (D10). */
export class MethodNotAllowed extends Schema.Error<MethodNotAllowed>("MethodNotAllowed")(
  ...fixedMessage(405, "Method not allowed", "The route exists, but only for the methods named in `Allow`.")
) {
  readonly _tag = "MethodNotAllowed"
}

export class RequestTimeout extends Schema.Error<RequestTimeout>("RequestTimeout")(
  ...fixedMessage(408, "Request timeout", "The request did not arrive in time.")
) {
  readonly _tag = "RequestTimeout"
}

/** 413 (D9). */
export class PayloadTooLarge extends Schema.Error<PayloadTooLarge>("PayloadTooLarge")(
  ...fixedMessage(413, "Request payload too large", "The body is longer than 256 KiB.")
) {
  readonly _tag = "PayloadTooLarge"
}

export class ExpectationFailed extends Schema.Error<ExpectationFailed>("ExpectationFailed")(
  ...fixedMessage(417, "Expectation failed", "The `Expect` header asks for something other than `100-continue`.")
) {
  readonly _tag = "ExpectationFailed"
}

export class HeadersTooLarge extends Schema.Error<HeadersTooLarge>("HeadersTooLarge")(
  ...fixedMessage(
    431,
    "Request header fields too large",
    "The request line and headers are longer than 16 KiB, or more than 1,000 headers."
  )
) {
  readonly _tag = "HeadersTooLarge"
}
