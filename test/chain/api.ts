/** The API of the chain library over a connection to a node. */
import { ApiPromise, type WsProvider } from "@polkadot/api";
import type { ProviderInterface } from "@polkadot/rpc-provider/types";

/** The library's own types don't hold under our reading of optional properties. */
export function apiOver(
  provider: WsProvider,
  options: { readonly throwOnConnect?: true } = {},
): Promise<ApiPromise> {
  return ApiPromise.create({
    provider: provider as ProviderInterface,
    noInitWarn: true,
    ...options,
  });
}
