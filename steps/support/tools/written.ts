/** Calls that a model wrote as text instead of making them. */
import type { Tool } from './tool.ts'
export function noteOnCalls(_text: string, _tools: Tool[]): string {
  return ''
}
export function writtenCall(
  _text: string,
  _tools: { name: string }[],
): string | undefined {
  return undefined
}
