import { Arbitrary } from "effect"
import { ChangeableField } from "../../../src/domain/CredentialChanges.ts"
import { acceptedBody, elementOf, text } from "./arbitraries.ts"

/** Members that an update may carry, in JSON, from a body that create would accept for any provider. */
export const changesBody: Arbitrary.Arbitrary<Record<string, unknown>> = Arbitrary.map(
  Arbitrary.all({
    body: acceptedBody(text(1, 60)),
    given: Arbitrary.array(elementOf(ChangeableField.literals), { maxLength: 6 })
  }),
  ({ body, given }) =>
    Object.fromEntries(Object.entries(body).filter(([name]) => given.some((member) => member === name)))
)

/** The changes in two parts that share no member. Key and region stay together, as a key may bring its region. */
export const inTwoParts = (body: Record<string, unknown>, inFirst: ReadonlyArray<boolean>) => {
  const isFirst = (name: string) => {
    const index = ChangeableField.literals.findIndex((member) => member === (name === "declared_region" ? "key" : name))
    return inFirst[index % Math.max(1, inFirst.length)] === true
  }
  const part = (wanted: boolean) =>
    Object.fromEntries(Object.entries(body).filter(([name]) => isFirst(name) === wanted))
  return [part(true), part(false)] as const
}
