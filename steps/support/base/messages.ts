/** What a message holds: its calls, its text. */
import type { Message, MessageParam, ToolUseBlock } from '@anthropic-ai/sdk/resources'

/** The tool calls of a reply, in order. */
export function toolUses({ content }: Message): ToolUseBlock[] {
  return content.filter((block) => block.type === 'tool_use')
}

/** All text blocks of a message, joined; '' if it has none. */
export function textOf({ content }: Pick<MessageParam, 'content'>): string {
  if (typeof content === 'string') return content
  return content.map((block) => (block.type === 'text' ? block.text : '')).join('')
}

/** The last words of an assistant since it was last asked; '' if there are none. */
export function lastText(messages: MessageParam[]): string {
  const asked = messages.findLastIndex(({ content }) => typeof content === 'string')
  const own = messages.slice(asked).filter(({ role }) => role === 'assistant')
  return own.map(textOf).findLast((text) => text.trim() !== '') ?? ''
}

/** Whether a reply was cut short: its last call may be half of what was meant. */
export function isCut({ stop_reason }: Pick<Message, 'stop_reason'>): boolean {
  return stop_reason === 'max_tokens' || stop_reason === 'model_context_window_exceeded'
}
