/** How large a history is. */
import type { MessageParam } from '@anthropic-ai/sdk/resources'
import { sizeOf, tokensIn } from '../base/lane-file.ts'
import type { Lanes } from './lanes.ts'

type Run = { lanes: Lanes; unit: 'tokens' | 'bytes' }

/**
 * In tokens, as an API counted its last request and reply (0 before the first), or in
 * bytes, what its next request is made of, as `view` counts.
 */
export function sizeOfHistory({ lanes, unit }: Run, messages: MessageParam[]): number {
  const { reply, header, asLogged } = lanes.of(messages)
  const { input, output } = tokensIn([reply?.usage])
  if (unit === 'tokens') return input + output
  return sizeOf([header.system, header.tools, ...messages.map(asLogged)])
}
