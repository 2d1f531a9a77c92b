import { ConfigProvider, Layer } from "effect"

/** The environment as it is when a setting is looked up. By default Effect keeps a copy, also of what was removed since. */
export const layer: Layer.Layer<never> = ConfigProvider.layer(
  ConfigProvider.make((path) => ConfigProvider.fromEnv().load(path))
)
