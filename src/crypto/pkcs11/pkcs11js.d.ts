/** The part of pkcs11js that is used, so that the code type-checks without this optional package. */
declare module "pkcs11js" {
  interface Attribute {
    readonly type: number
    readonly value?: Buffer | string | number | boolean
  }
  interface Mechanism {
    readonly mechanism: number
    readonly parameter?: object
  }
  interface PKCS11 {
    load(path: string): void
    C_Initialize(options: { readonly flags: number }): void
    C_GetSlotList(tokenPresent: boolean): Array<Buffer>
    C_GetTokenInfo(slot: Buffer): { readonly label: string }
    C_OpenSession(slot: Buffer, flags: number): Buffer
    C_CloseSession(session: Buffer): void
    C_Login(session: Buffer, user: number, pin: string): void
    C_FindObjectsInit(session: Buffer, template: Array<Attribute>): void
    C_FindObjects(session: Buffer, maxObjects: number): Array<Buffer>
    C_FindObjectsFinal(session: Buffer): void
    C_GetAttributeValue(session: Buffer, object: Buffer, template: Array<Attribute>): Array<{ readonly value: Buffer }>
    C_EncryptInit(session: Buffer, mechanism: Mechanism, key: Buffer): void
    C_Encrypt(session: Buffer, input: Buffer, output: Buffer): Buffer
    C_DecryptInit(session: Buffer, mechanism: Mechanism, key: Buffer): void
    C_Decrypt(session: Buffer, input: Buffer, output: Buffer): Buffer
  }
  const pkcs11js: {
    readonly PKCS11: new () => PKCS11
  } & Readonly<Record<`CK${"A" | "F" | "K" | "M" | "O" | "U"}_${string}` | `CK_PARAMS_${string}`, number>>
  export default pkcs11js
}
